"""Texts that act on the program that shows or executes them, and the sign that one of them has."""

from __future__ import annotations

from tests.support.guarded_export import CANARY

# A payload makes a file, or a JavaScript variable, of the canary's name if it is executed.

_PYTHON = (
    f'open("{CANARY}", "w")',
    f'x"""\nopen("{CANARY}", "w")\n"""',
    f"x'\nopen('{CANARY}', 'w')\n'",
    f'x"); open("{CANARY}", "w"); ("',
    f'x=open("{CANARY}", "w"), y',
    f"x\n    open('{CANARY}', 'w')\n",
)
_TEMPLATES = (
    f"{{{{ cycler.__init__.__globals__.os.system('touch {CANARY}') }}}}",
    f"{{% set x = open('{CANARY}') %}}",
    "@{x}{safe} @x $index",
    "{0.__class__} {x} %s %(x)s %n",
)
_SHELL_AND_YAML = (
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"; touch {CANARY} #",
    f"!!python/object/apply:os.system ['touch {CANARY}']",
    "--index-url https://example.org/simple",
)
_PAGES = (
    f"\"'></script><script>window.{CANARY}=1</script>",
    f'<img src=x onerror="window.{CANARY}=1">',
    f"<svg onload=window.{CANARY}=1>",
    f"</title></style><script>window.{CANARY}=1</script>",
    f"javascript:window.{CANARY}=1",
    '<iframe src="https://example.org/"></iframe>',
    "<!--<script>",
    "[x](javascript:alert(1)) ![x](//example.org/x.png)",
    "a|b\n| --- |\n# heading",
)
_TERMINALS = (
    "\x1b]0;title\x07\x1b[2J\x1b[31m",
    "\x9b31m\x90x\x9c",
    "\u202etxt.exe\u2066",
    "\u2028import os\u2029\x85",
    "\r\x08\x08overwritten",
    "\u200b\ufeff\U000e0041",
    "[bold red]x[/] [link=https://example.org]x[/link]",
)
_PATHS = ("../../../tmp/x", "/etc/passwd", "C:\\x", "x/../../y", "~/.ssh/id_rsa", ".")
_ODD = ("", " ", "\\", "x" * 3000, "NaN", "-inf", "1e999", "None", "true", "0", "null", "é" * 200)

PAYLOADS = (*_PYTHON, *_TEMPLATES, *_SHELL_AND_YAML, *_PAGES, *_TERMINALS, *_PATHS, *_ODD)
