import pandas as pd

from analysis.publish.tables import set_tables


def test_the_names_of_the_index_join_the_other_heads():
    table = pd.DataFrame({"run": ["a", "b"], "value": [1.0, 2.0]}).set_index("run").to_html()
    head = set_tables(table).split("</thead>")[0]
    assert head.count("<tr") == 1
    assert head.index("run") < head.index("value")


def test_two_rows_of_heads_that_both_say_something_stay():
    columns = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])
    table = pd.DataFrame([[1, 2]], columns=columns).to_html()
    assert set_tables(table).split("</thead>")[0].count("<tr") == 2
