"""Throw-away notebooks for the tests of the report: text, formulas, figures, tables, parameters, an error."""

from __future__ import annotations

import base64
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def code(source: str, *tags: str):
    return new_code_cell(source, metadata={"tags": list(tags)} if tags else {})


def write(folder: Path, name: str, *cells, kernel: str | None = "author-env", **metadata) -> Path:
    """Write a notebook whose stored kernel exists nowhere (or is absent), as files from other machines have."""
    notebook = new_notebook(cells=list(cells), metadata=metadata)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell{number}"
    if kernel:
        notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


OVERVIEW = (
    new_markdown_cell(
        "# What the claims come to\n\nEvery claim of the paper, the measurement that decides it, and the verdict. A layer "
        "with fast weights $W_t$ is read as *linear attention* with effective keys $\\phi(k_t)$ and values "
        "$-\\eta_t\\,\\partial L/\\partial f$; see [the method](#01_method) and [Figure](#fig-step-sweep)."
    ),
    code(
        "import pandas as pd\n"
        "from analysis.publish import use_style\nuse_style()\n"
        "claims = pd.DataFrame({\n"
        "    'claim': ['More inner steps lower the inner loss but not perplexity', 'Gradient ascent works as well',\n"
        "              'Queries may be replaced by keys', 'Momentum and the orthogonaliser commute'],\n"
        "    'section': ['3.1', '3.2', '3.3', '5.3'],\n"
        "    'published': ['+0.8 ppl', '-0.02 ppl', '+0.1 ppl', 'identity'],\n"
        "    'measured': ['+1.31 [0.92, 1.70]', '-0.01 [-0.05, 0.03]', '+0.22 [-0.10, 0.51]', '0.84 relative error'],\n"
        "    'verdict': ['reproduced', 'reproduced', 'inconclusive at this scale', 'not reproduced'],\n"
        "})\nclaims",
        "title-page",
        "hide-input",
    ),
    new_markdown_cell(
        "## How to read this report\n\nClaims are settled by intervals, never by a single run."
    ),
    new_markdown_cell("## Pictures in text\n\n![a single pixel](pixel.png)"),
)

METHOD = (
    new_markdown_cell(
        "# Linear attention in disguise\n\nThe inner loop takes one gradient step per chunk on the dot-product loss\n\n"
        "$$L(f; k, v) = -\\langle f(k), v\\rangle, \\qquad f(x) = \\phi(x;\\Theta)\\,W .$$\n\n"
        "With the last layer alone moving, the output for a query $q$ is a sum over everything seen so far,\n\n"
        "$$o_t = \\phi(q_t)\\Bigl(W_0 + \\sum_{s\\le t}\\eta_s\\,\\phi(k_s)^{\\top} v_s\\Bigr)\n"
        "      = \\phi(q_t)W_0 + \\sum_{s\\le t} \\eta_s\\,\\langle\\phi(q_t),\\phi(k_s)\\rangle\\,v_s ,$$\n\n"
        "which is linear attention with an initial state $S_0 = W_0$.\n\n## Momentum as a mask $M$\n\n"
        "\\begin{aligned} D_c &= G_c + \\alpha_c D_{c-1}, \\\\ W_{c+1} &= W_c - \\mathcal{T}(D_c). \\end{aligned}\n\n"
        "> The paper does not say what $k$ inner steps are; the reading here is a complete optimiser step each.\n\n"
        "1. First the gradient,\n2. then momentum,\n3. then the transform.\n\n"
        "Inline code such as `steps=4` is set in a mono face, and [this link](#momentum-as-a-mask-m) stays inside."
    ),
    code(
        "steps: list[int] = [0, 1, 2, 4, 8]  # inner steps at test time; range 0..64\n"
        "scale: float = 1.0  # factor on the learned rates; range 1e-6..1e6\n"
        "samples: int = 16  # evaluation sequences; range 1..4096\n"
        'device: str = "cpu"  # where to run; one of cpu, cuda',
        "parameters",
    ),
    code(
        "import sys\nimport numpy as np\nimport pandas as pd\n"
        "from analysis.publish import DOUBLE_COLUMN, SINGLE_COLUMN, Caption, look, save_figure, use_style\n"
        "use_style()\nimport matplotlib.pyplot as plt\nprint('noise that nobody reads', file=sys.stderr)\n"
        "print(f'{samples} samples, steps {steps}')"
    ),
    new_markdown_cell("## More steps, lower inner loss"),
    code(
        "table = pd.DataFrame({'steps': steps, 'inner loss': [np.exp(-scale * s / 3) for s in steps],\n"
        "                      'task metric': [12 + 0.8 * np.log1p(s) for s in steps]})\n"
        "fig, ax = plt.subplots(figsize=(SINGLE_COLUMN, 2.3))\n"
        "ax.plot(table['steps'], table['inner loss'], **look('inner loss').line())\n"
        "ax.set_xlabel('inner steps $k$'); ax.set_ylabel('inner loss after the update'); ax.legend()\n"
        "save_figure(fig, 'step-sweep', table,\n"
        "            Caption(shown='Inner loss after the update against the number of inner steps; the loss falls.',\n"
        "                    model='trained with LaCT-LM baseline; difference: steps: 1 -> 0, 2, 4, 8.',\n"
        "                    measured='command analysis probe steps; seeds 0, 1, 2; 16 samples per point; device cpu.'),\n"
        "            alt='One falling line: the inner loss drops from 1 to 0.07 between 0 and 8 inner steps.')"
    ),
    new_markdown_cell("### The same in numbers\n\nA click on a column head sorts."),
    code("table.round(3)"),
    code(
        "names = ['Baseline', 'Variant 1', 'Variant 2', 'Variant 3', 'Variant 4', 'Variant 5', 'Variant 6']\n"
        "fig, axes = plt.subplots(1, 2, figsize=(DOUBLE_COLUMN, 2.5))\n"
        "x = np.arange(6)\nrows = []\n"
        "for i, name in enumerate(names):\n"
        "    y = 20 - x + 0.6 * i + 0.2 * np.sin(x + i)\n"
        "    axes[0].plot(x, y, **look(name).line())\n"
        "    axes[1].bar(i, y[-1], **look(name).fill())\n"
        "    rows += [{'variant': name, 'x': int(a), 'y': b} for a, b in zip(x, y)]\n"
        "axes[0].set(xlabel='outer steps (thousands)', ylabel='perplexity'); axes[0].legend(ncols=2)\n"
        "axes[1].set_xticks(range(7), ['B', 'V1', 'V2', 'V3', 'V4', 'V5', 'V6']); axes[1].set_ylabel('perplexity at the end')\n"
        "save_figure(fig, 'ladder', rows, 'The ladder of variants, from the published layer down to plain linear attention.',\n"
        "            alt='Seven falling lines and their end points as bars; every variant ends slightly above the one before.')"
    ),
    code("pd.DataFrame(np.arange(28).reshape(2, 14) / 7, columns=[f'measure {i}' for i in range(14)])"),
)

BROKEN = (
    new_markdown_cell("# A probe that fails\n\nSome text first."),
    code("steps: list[int] = [1]  # inner steps; range 0..9", "parameters"),
    code("print('computed before the error')"),
    code("raise RuntimeError('the third probe is broken')"),
    code("print('never reached')"),
)
