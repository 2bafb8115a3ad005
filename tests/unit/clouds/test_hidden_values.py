"""A job that prints the values of its variables: what it says when it fails goes into reports, without them."""

from mlcd.untrusted import hidden


def test_values_are_replaced_by_their_names_longest_first() -> None:
    values = {"KEY": "hunter2hunter2", "LONG": "hunter2hunter2-and-more", "SHORT": "1"}
    text = "401 for https://x/?k=hunter2hunter2 and hunter2hunter2-and-more after 1 try"
    assert hidden(text, values) == "401 for https://x/?k=$KEY and $LONG after 1 try"


def test_a_value_of_several_lines_is_hidden_line_by_line() -> None:
    values = {"PEM": "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\nshort\n"}
    assert hidden("cannot read MIIEpAIBAAKCAQEA", values) == "cannot read $PEM"
