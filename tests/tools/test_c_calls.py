"""Calls that log are read from C and Go sources as formats, with their level."""

import pytest

from tools.catalogues.c_source.calls import formats, log_calls
from tools.catalogues.c_source.levels import level_by_name
from tools.catalogues.linux.functions import MACROS, level_of


def _read(source: str) -> list[tuple[str, str]]:
    return [(call.level, call.format) for call in log_calls(source, level_of, MACROS)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('pr_err("disk %s is gone\\n", name);', [("error", "disk %s is gone")]),
        ('dev_warn(&dev->dev, "first " "second\\n");', [("warning", "first second")]),
        ('dev_info(dev,\n\t"over "\n\t"two lines\\n", f(a, g(b)));', [("info", "over two lines")]),
        ('pr_info("%" PRIu64 " bytes", n);', [("info", "%u bytes")]),
        ('pr_err(HW_ERR "CPU %d", cpu);', [("error", "[Hardware Error]: CPU %d")]),
        ('pr_err("one\\ntwo\\n");', [("error", "one"), ("error", "two")]),
        ('pr_err("a \\"quoted\\" (name");', [("error", 'a "quoted" (name')]),
        ('pr_err(/* why, "not" */ "said" /* after */);', [("error", "said")]),
        ('// pr_err("left out");\n/* pr_err("too"); */', []),
        ('x = "pr_err(\\"text\\")";', []),
        ('pr_err("%s\\n", up ? "is up" : "is down");', [("error", "%s")]),
        ('pr_err(up ? "is up" : "is down");', [("error", "is up"), ("error", "is down")]),
        (
            'pr_err((a ? "one" : b ? "two" : "three"));',
            [("error", "one"), ("error", "two"), ("error", "three")],
        ),
        ('printk(KERN_ERR "lost\\n");', [("error", "lost")]),
        ('printk(KERN_CONT "more\\n");', []),
        ('printk("at the default level");', [("warning", "at the default level")]),
        ('sdev_printk(KERN_INFO, sdev, "spun %s", up);', [("info", "spun %s")]),
        ('ext4_msg(sb, KERN_CRIT, "remounted");', [("error", "remounted")]),
        ('cifs_dbg(FYI, "quiet"); cifs_dbg(VFS, "loud");', [("debug", "quiet"), ("error", "loud")]),
        ('WARN(strcmp(a, "x"), "bad state %d", s);', [("warning", "bad state %d")]),
        ('panic("no way on: %s", why);', [("error", "no way on: %s")]),
        ('dprintk("no one sees it");', []),
        ('snprintf(buf, 9, "not a log");', []),
        ("pr_err(fmt, a);", []),
        ('pr_err("never closed', []),
        ('#define DRV "my_nic"\npr_err(DRV ": reset");', [("error", "my_nic: reset")]),
        ('#define say(f) \\\n\tpr_err("on two " \\\n\t"lines")\n', [("error", "on two lines")]),
    ],
)
def test_calls_become_formats(source: str, expected: list[tuple[str, str]]) -> None:
    """Literals are joined, both sides of a condition are read, and comments and other texts are not."""
    assert _read(source) == expected


def test_a_name_between_literals_is_a_gap_unless_it_is_known() -> None:
    """What a macro stands for is known of macros that the file defines, and of those that are given."""
    assert formats('"of " NAME " it"') == ["of %s it"]
    assert formats('"of " NAME " it"', {"NAME": "all"}) == ["of all it"]
    assert formats("NAME") == []


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("netdev_err", "error"),
        ("ibdev_warn_ratelimited", "warning"),
        ("dev_err_probe", "error"),
        ("DMERR", "error"),
        ("DMWARN_LIMIT", "warning"),
        ("pci_info_once", "info"),
        ("mlx5_core_dbg", "debug"),
        ("register_error_handler", None),
        ("terror", None),
    ],
)
def test_a_level_is_in_the_name_of_the_function(name: str, level: str | None) -> None:
    """The last word of a name counts, whatever limits its rate."""
    assert level_by_name(name) == level
