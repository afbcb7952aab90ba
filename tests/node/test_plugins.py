"""Plug-ins: found, checked, and entered into a catalogue of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from node.errors import PluginError
from node.plugins import EDGEBED, LearningCatalogue, digest, find, is_of_plugin, line_of, with_plugins

GOOD = """\
from dataclasses import dataclass
import edgebed

@dataclass(frozen=True, kw_only=True)
class Mine(edgebed.LocalTraining):
    share: float = edgebed.number(0.5, low=0, high=1)

class Part(edgebed.Role):
    async def run(self):
        raise ValueError("lost")

def fails():
    raise ValueError("lost")

ROLES = {"cloud": Part, "device": Part}
PLUGIN = edgebed.Plugin(
    algorithms=[edgebed.Algorithm("mine", params=Mine)],
    models=[edgebed.ModelEntry("little", build=lambda shape, classes, params: None)],
)
"""


def use(folder: Path, text: str, name: str = "mine.py") -> LearningCatalogue:
    (folder / name).write_text(text)
    return with_plugins([find(name, folder)])


def share(catalogue: LearningCatalogue) -> float:
    params: Any = catalogue.algorithms["mine"].params()
    return float(params.share)


def test_a_plug_in_is_known_in_its_own_catalogue(tmp_path: Path) -> None:
    catalogue = use(tmp_path, GOOD)
    (source,) = catalogue.sources
    assert (source.name, source.module, source.is_file) == ("mine.py", "edgebed_plugins.mine", True)
    module = catalogue.algorithms["mine"].module
    assert share(catalogue) == 0.5
    assert catalogue.models["little"].measure is None
    assert catalogue.algorithms["mine"].roles["cloud"].__module__ == module
    assert is_of_plugin(module, catalogue.sources)
    assert not is_of_plugin(module, [])
    assert not is_of_plugin("edgebed_plugins.mine_too", catalogue.sources)
    assert not is_of_plugin("os.path", catalogue.sources)
    assert not {"mine", "little"} & {*EDGEBED.algorithms, *EDGEBED.models}


def test_the_versions_of_a_file_are_independent(tmp_path: Path) -> None:
    """Two scenarios of one process may have files of the same name."""
    before = use(tmp_path, GOOD)
    after = use(tmp_path, GOOD.replace("0.5", "0.25"))
    assert before.sources[0].sha256 != after.sources[0].sha256
    assert (share(before), share(after)) == (0.5, 0.25)
    modules = {catalogue.algorithms["mine"].roles["cloud"].__module__ for catalogue in (before, after)}
    assert len(modules) == 2
    assert all(name in sys.modules for name in modules)


def test_a_plug_in_builds_on_those_before_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(GOOD)
    other = "import edgebed\nmine = edgebed.algorithm('mine')\nROLES = mine.roles\n"
    other += "PLUGIN = edgebed.Plugin(algorithms=[edgebed.Algorithm('other', params=mine.params)])\n"
    (tmp_path / "other.py").write_text(other)
    both = with_plugins([find("mine.py", tmp_path), find("other.py", tmp_path)])
    assert both.algorithms["other"].params is both.algorithms["mine"].params
    with pytest.raises(PluginError, match=r"^other.py:2: .*'mine' is no algorithm"):
        with_plugins([find("other.py", tmp_path), find("mine.py", tmp_path)])


@pytest.mark.parametrize("name", ["mine.py", "theirlab.models"])
def test_a_change_that_bytecode_does_not_show_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Bytecode has the size of its file, and the second in which it was changed."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "theirlab").mkdir()
    (tmp_path / "theirlab" / "__init__.py").touch()
    file = tmp_path / "mine.py" if name == "mine.py" else tmp_path / "theirlab" / "models.py"
    for value in (0.5, 0.2):
        file.write_text(GOOD.replace("0.5", str(value)))
        os.utime(file, (1_800_000_000, 1_800_000_000))
        assert share(with_plugins([find(name, tmp_path)])) == value
    assert not (tmp_path / "__pycache__").exists()


def test_an_installed_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mylab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "shared.py").write_text("SHARE = 0.75\n")
    (package / "models.py").write_text(GOOD.replace("import edgebed", "import edgebed\nfrom mylab.shared import SHARE"))
    monkeypatch.syspath_prepend(tmp_path)
    source = find("mylab.models", tmp_path)
    assert set(source.contents()) == {"mylab/__init__.py", "mylab/models.py", "mylab/shared.py"}
    catalogue = with_plugins([source])
    assert catalogue.algorithms["mine"].module == "mylab.models"
    assert is_of_plugin("mylab.shared", catalogue.sources)
    assert share(catalogue) == 0.5
    (package / "models.py").write_text((package / "models.py").read_text().replace("0.5,", "0.125,"))
    changed = with_plugins([find("mylab.models", tmp_path)])
    assert (share(catalogue), share(changed)) == (0.5, 0.125)
    roles = [version.algorithms["mine"].roles["cloud"] for version in (catalogue, changed)]
    assert roles[0] is not roles[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py", "none.py cannot be read: No such"),
        ("my-lab.py", "my-lab.py: the file's name is no"),
        ("nolab.models", "no module 'nolab.models': install its package"),
        ("..models", "no module '..models'"),
    ],
)
def test_what_is_not_there(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(PluginError) as raised:
        find(name, tmp_path)
    assert str(raised.value).startswith(message)


PLAIN = 'algorithms=[edgebed.Algorithm("mine", params=Mine)]'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Part(", "class Part[", "mine.py:8: "),
        (
            "import edgebed\n",
            "import edgebed\nimport nothing_there\n",
            "mine.py:3: ModuleNotFoundError: No module named",
        ),
        ("PLUGIN =", "THING =", "mine.py declares nothing: end it with"),
        ("PLUGIN = edgebed.Plugin(", "PLUGIN = dict(", "mine.py: PLUGIN is a dict, not"),
        (PLAIN, "algorithms=[Mine()]", "mine.py: algorithms holds a Mine, not an edgebed.Algorithm"),
        ('"mine"', '"fedavg"', "mine.py: there is already an algorithm"),
        ('"little"', '"cnn"', "mine.py: there is already a model"),
        ('"little"', '"small"', "mine.py: there is already a model"),
        ('"little", build=', '"little", measure=', "mine.py: model little has no build"),
        ("ROLES =", "PARTS =", "mine.py has no ROLES, a mapping"),
        ('"cloud": Part, ', "", 'mine.py: ROLES has no "cloud", though'),
        ('"device": Part}', '"device": fails}', 'mine.py: ROLES["device"] is <function fails'),
        ("async def run(self)", "def run(self)", "mine.py:8: Part needs a method `async"),
        ("async def run(self)", "async def walk(self)", "mine.py:8: Part needs a method `async"),
        ("async def run(self)", "async def run(self, t)", "mine.py:8: Part.run takes nothing but self"),
        (
            "edgebed.LocalTraining",
            "edgebed.Parameters",
            "mine.py: the parameters of algorithm mine",
        ),
        ("edgebed.number(0.5, low=0, high=1)", "0.5", "mine.py: parameter share of algorithm mine"),
        ("params=Mine", "params=Mine, module='nothing'", "mine.py: the module 'nothing' of algorithm mine cannot be"),
    ],
)
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(PluginError) as raised:
        use(tmp_path, GOOD.replace(old, new))
    assert str(raised.value).startswith(message)


def test_two_plug_ins_may_not_have_one_name(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(PluginError, match=r"^two.py: there is already.*'mine'"):
        with_plugins([find("one.py", tmp_path), find("two.py", tmp_path)])


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    """Python would know one of them only."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(GOOD)
    with pytest.raises(PluginError, match=r"^two/mine.py and one/mine.py.*same name"):
        with_plugins([find("one/mine.py", tmp_path), find("two/mine.py", tmp_path)])


def test_the_line_of_an_error(tmp_path: Path) -> None:
    catalogue = use(tmp_path, GOOD)
    module: Any = sys.modules[catalogue.algorithms["mine"].module]
    with pytest.raises(ValueError, match="lost") as raised:
        module.fails()
    assert line_of(raised.value, catalogue.sources) == "mine.py:13"
    assert line_of(raised.value, []) == ""
    with pytest.raises(ValueError, match="literal") as raised:
        int("x")
    assert line_of(raised.value, catalogue.sources) == ""


def test_the_hash_of_a_file_does_not_depend_on_how_its_name_was_decoded() -> None:
    """An ASCII locale decodes the UTF-8 bytes of \u00e9 to surrogates (PEP 383)."""
    assert digest({"p/\udcc3\udca9.py": b"1"}) == digest({"p/\u00e9.py": b"1"}) != digest({"p/e.py": b"1"})
