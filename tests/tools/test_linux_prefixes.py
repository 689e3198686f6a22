"""Words that every line of a kernel source file has, from its own definitions and from Makefiles."""

from pathlib import Path

from tools.catalogues.linux.prefixes import Prefixes, module_name


def _prefixes(text: str, root: Path, path: str = "drivers/net/nic/main.c") -> Prefixes:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return Prefixes(file, text, root)


def test_a_prefix_of_the_file_is_required_of_its_own_functions(tmp_path: Path) -> None:
    """pr_fmt begins what pr_ functions write, dev_fmt what functions of devices write."""
    text = '#define pr_fmt(fmt) "AER: " fmt\n#define dev_fmt pr_fmt\n'
    prefixes = _prefixes(text, tmp_path)
    assert prefixes.required("pr_err", ()) == ("AER",)
    assert prefixes.required("pci_err", ()) == ("AER",)
    assert prefixes.required("printk", ()) == ()


def test_a_prefix_that_changes_on_the_way_is_one_of_several(tmp_path: Path) -> None:
    """A file that defines pr_fmt twice writes lines with either."""
    text = '#define pr_fmt(fmt) "Memory failure: " fmt\n#undef pr_fmt\n#define pr_fmt(fmt) "Soft offline: " fmt\n'
    assert _prefixes(text, tmp_path).required("pr_info", ()) == ("Memory failure", "Soft offline")


def test_a_device_brings_the_words_of_its_driver(tmp_path: Path) -> None:
    """Functions of a device write the driver's name; a file system's functions write its own."""
    prefixes = _prefixes("", tmp_path)
    assert prefixes.required("netdev_err", ("mlx5",)) == ("mlx5",)
    assert prefixes.required("pr_err", ("mlx5",)) == ()
    assert prefixes.required("xfs_alert", ()) == ("XFS",)


def test_a_module_has_the_name_in_the_makefile(tmp_path: Path) -> None:
    """KBUILD_MODNAME is the module that an object is linked into."""
    (tmp_path / "drivers/net/nic").mkdir(parents=True)
    (tmp_path / "drivers/net/nic/Makefile").write_text(
        "nic_core-y := main.o \\\n\tcmd.o sub/health.o\n"
    )
    folder = tmp_path / "drivers/net/nic"
    assert module_name(folder / "sub/health.c", tmp_path) == "nic_core"
    assert module_name(folder / "other-part.c", tmp_path) == "other_part"
    prefixes = _prefixes('#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt\n', tmp_path)
    assert prefixes.required("pr_warn", ()) == ("nic_core",)
