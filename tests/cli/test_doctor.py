"""`rankmuster doctor`: settings listed, typed and judged."""

from __future__ import annotations

import msgspec
import pytest

from rankmuster.cli import run
from rankmuster.cli.doctor import is_reserved
from rankmuster.environment import VARIABLES, BadSetting, near_misses, read_settings


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of ours is set."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)


def test_every_variable_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """--env prints each variable with its default, type and effect."""
    assert run(["doctor", "--env"]) == 0
    text = capsys.readouterr().out
    assert [v.name for v in VARIABLES if v.name not in text] == []
    assert "NEURON_RT_CC_CHUNK_SIZE" in text
    assert "2097152 (default)" in text
    assert "[undocumented]" in text


def test_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As JSON values keep their types; a secret is never shown."""
    monkeypatch.setenv("RANKMUSTER_SECRET", "hush hush hush hush")
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "2-3")
    assert run(["doctor", "--env", "--format", "json"]) == 0
    text = capsys.readouterr().out
    assert "hush" not in text
    rows = {row["name"]: row for row in msgspec.json.decode(text)["variables"]}
    assert rows["NEURON_RT_DBG_CC_CHECK_SIGS"]["value"] is True
    assert (rows["NEURON_RT_VISIBLE_CORES"]["value"], rows["RANKMUSTER_SECRET"]["value"]) == (
        "2-3",
        "(set)",
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NEURON_RT_DBG_CC_CHECK_SIGS", "maybe", "write 0 or 1"),
        ("NEURON_RT_CC_CHUNK_SIZE", "-1", "write a whole number from 1"),
        ("NEURON_RT_VISIBLE_CORES", "0,2", "consecutive, increasing"),
        ("NEURON_RT_VISIBLE_CORES", "200", "of a server that has 64"),
        ("RANKMUSTER_NRT_DEADLINE", "soon", "write seconds"),
        ("RANKMUSTER_NRT_KEY_ORDER", "sortd", "did you mean 'sorted'?"),
        ("NEURON_RT_FAKE_INSTANCE_TYPE", "trn2.48xlargo", "did you mean 'trn2.48xlarge'?"),
        ("NEURON_RT_VIRTUAL_CORE_SIZE", "1", ""),
        ("NEURON_RT_ROOT_COMM_ID", "nowhere", "ip:port"),
        ("NEURON_RT_ROOT_COMM_ID", "192.0.2.7:99", "umask 077"),
        ("NEURON_RT_ROOT_COM_ID", "1.2.3.4:5", "did you mean 'NEURON_RT_ROOT_COMM_ID'?"),
    ],
)
def test_complaints(
    name: str,
    value: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever will hurt is named with its value and what to write instead."""
    monkeypatch.setenv(name, value)
    assert run(["doctor"]) == (1 if said else 0)
    assert said in capsys.readouterr().out


def test_names_that_disagree() -> None:
    """The two names of the logical-core size must say the same."""
    both = {"NEURON_RT_VIRTUAL_CORE_SIZE": "1", "NEURON_LOGICAL_NC_CONFIG": "2"}
    with pytest.raises(BadSetting, match="disagree"):
        read_settings(both)
    assert read_settings({"NEURON_LOGICAL_NC_CONFIG": "2"}).core_size == 2


def test_near_misses() -> None:
    """Only names near one of ours are complained about: the runtime knows many more."""
    assert near_misses({"NEURON_RT_EXEC_TIMEOUT": "9", "PATH": "/bin"}) == {}


def test_reserved_ports() -> None:
    """A port is found in single entries and in spans."""
    assert [is_reserved(port, "8080,9000-9010") for port in (8080, 9005, 9011)] == [
        True,
        True,
        False,
    ]
    assert not is_reserved(1, "")
