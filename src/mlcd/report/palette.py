"""The colours of pictures and pages, light and dark, and the style sheet that all of them follow.

Series differ by shape as well. Their colours were chosen so that people who see red, green or blue less can tell them
apart, and so that each has a contrast of at least 3:1 to the paper (text: 4.5:1); a test computes both.
"""

from collections.abc import Mapping

SERIES = 6
"""Colours and shapes of curves; what comes after them shares one look."""
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif"

_LIGHT_SERIES = ("#2050ca", "#dd560e", "#1c9276", "#981372", "#665800", "#9d68e8")
_DARK_SERIES = ("#6eb1f9", "#fa8c6b", "#7ce8c8", "#c070a0", "#f2d840", "#8f7ef6")

LIGHT: Mapping[str, str] = {
    "ink": "#16202c",
    "muted": "#566270",
    "grid": "#e4e9ef",
    "paper": "#ffffff",
    "ground": "#f3f5f8",
    "other": "#566270",
    "accent": "#c2185b",
    "accent-ink": "#ffffff",
    "good": "#14773a",
    "bad": "#c81e1e",
    "spent": "#2050ca",
    "kept": "#cfe0fb",
    "note": "#7d5200",
    "note-ground": "#fff6dd",
    "note-rule": "#f0d48a",
    **{f"s{at}": colour for at, colour in enumerate(_LIGHT_SERIES)},
}
DARK: Mapping[str, str] = {
    "ink": "#e8edf3",
    "muted": "#a3afbc",
    "grid": "#2a3542",
    "paper": "#151c25",
    "ground": "#0c1117",
    "other": "#a3afbc",
    "accent": "#ff7fae",
    "accent-ink": "#1b0a12",
    "good": "#5fd38a",
    "bad": "#ff8080",
    "spent": "#6eb1f9",
    "kept": "#22405f",
    "note": "#f2cf73",
    "note-ground": "#2b2411",
    "note-rule": "#5c4a17",
    **{f"s{at}": colour for at, colour in enumerate(_DARK_SERIES)},
}
THEMES: Mapping[str, Mapping[str, str]] = {"light": LIGHT, "dark": DARK}

TEXT = ("ink", "muted", "accent", "good", "bad")
"""Roles of text on paper and ground."""
MARKS = ("ink", "muted", "other", "accent", "bad", "spent", *(f"s{at}" for at in range(SERIES)))
"""Roles of marks and lines that mean something. The reserve (`kept`) has an outline of `spent`."""

_RULES = (
    "font-family:{font};font-size:12px",
    " text{fill:{ink}}",
    " .paper{fill:{paper}}",
    " .muted{fill:{muted}}",
    " .grid{stroke:{grid};stroke-width:1;fill:none}",
    " .axis{stroke:{muted};stroke-width:1;fill:none}",
    " .walk{stroke:{muted};stroke-width:1.1;stroke-dasharray:2 4;fill:none;stroke-linecap:round}",
    " .ring{stroke:{accent};stroke-width:2.4;fill:none}",
    " .knee{stroke:{ink};stroke-width:1.6;fill:none}",
    " .chosen{fill:{accent};font-weight:650}",
    " .halo{stroke:{paper};stroke-width:3.5px;paint-order:stroke;stroke-linejoin:round}",
    " .limit{stroke:{bad};stroke-width:1.5;stroke-dasharray:6 4;fill:none}",
    " .bad{fill:{bad}}",
    " .shade{fill:{bad};fill-opacity:.09}",
    " .spent{fill:{spent};fill-opacity:.5;stroke:{spent};stroke-width:1.2}",
    " .kept{fill:{kept};stroke:{spent};stroke-width:1;stroke-dasharray:3 3}",
    " .run{fill:{accent};fill-opacity:.38;stroke:{accent};stroke-width:1.2}",
    " .run-predicted{fill:{paper};stroke:{accent};stroke-width:1.6;stroke-dasharray:5 3}",
    " .front{stroke:{ink};stroke-width:1.6;fill:none}",
    " .touch{fill:{ink};fill-opacity:0}",
    " .touch:hover{fill-opacity:.07}",
    " .mark{stroke:{paper};stroke-width:1.2}",
    " .hollow{fill:{paper};stroke:{muted};stroke-width:1.6}",
    " .open{fill:{paper};stroke:{ink};stroke-width:1.4;stroke-dasharray:4 3}",
    " .blank{fill:{ground};stroke:{grid};stroke-width:1}",
    " .hatch{stroke:{muted};stroke-width:1;fill:none}",
    " .over-limit{fill:{bad};fill-opacity:.16;stroke:{bad};stroke-width:1.4;stroke-dasharray:6 3}",
    " .measured-over{fill:{bad};fill-opacity:.16;stroke:{bad};stroke-width:1.6}",
    " .foreseen{fill:{paper};stroke:{muted};stroke-width:1;stroke-dasharray:2 2}",
    " .dash{stroke-dasharray:7 4}",
    *(
        rule
        for name in (*(f"s{at}" for at in range(SERIES)), "other")
        for rule in (
            f" .f-{name}{{fill:{{{name}}}}}",
            f" .l-{name}{{stroke:{{{name}}};stroke-width:2;fill:none}}",
            f" .w-{name}{{stroke:{{{name}}};stroke-width:1.2;fill:none}}",
            f" .x-{name}{{stroke:{{{name}}};stroke-width:2.4;stroke-linecap:round;fill:none}}",
            f" .b-{name}{{fill:{{{name}}};fill-opacity:.13}}",
            f" .c-{name}{{fill:{{{name}}};fill-opacity:.16;stroke:{{{name}}};stroke-width:1.3}}",
            f" .o-{name}{{fill:{{paper}};stroke:{{{name}}};stroke-width:1.6;stroke-dasharray:4 3}}",
        )
    ),
)


def variables(theme: str) -> str:
    """`--p-ink:#16202c;...` of one theme."""
    return "".join(f"--p-{role}:{colour};" for role, colour in THEMES[theme].items())


def _rules(value: str) -> str:
    """The rules of pictures; `value` makes a property's value from a role, such as `var(--p-{})`."""
    return "".join(
        ".mlcd-picture" + (rule if rule.startswith(" ") else f"{{{rule}}}")
        for rule in (_filled(rule, value) for rule in _RULES)
    )


def _filled(rule: str, value: str) -> str:
    for role in LIGHT:
        rule = rule.replace(f"{{{role}}}", value.format(role))
    return rule.replace("{font}", FONT)


PICTURE_RULES = _rules("var(--p-{})")
"""How marks look, in terms of the variables; a page has them once for all of its pictures."""
STYLE = (
    f".mlcd-picture{{{variables('light')}}}"
    f"@media (prefers-color-scheme:dark){{.mlcd-picture{{{variables('dark')}}}}}"
    f"@media print{{.mlcd-picture{{{variables('light')}}}}}{PICTURE_RULES}"
)
"""The style of a picture that stands alone: light or dark by the reader's setting, light on paper."""


def themed_style(theme: str) -> str:
    """The style of a picture with fixed colours and no variables, for programs that draw SVG but are no browser."""
    style = PICTURE_RULES
    for role, colour in THEMES[theme].items():
        style = style.replace(f"var(--p-{role})", colour)
    return style


def page_style() -> str:
    """Variables and picture rules for pages: everything below an element of class `mlcd` follows them.

    Light or dark by the reader's setting; the classes `mlcd-light` and `mlcd-dark`, on that element or around it,
    decide instead, as do the themes of JupyterLab and VS Code. Paper is always light.
    """
    light, dark = (f"{variables(name)}color-scheme:{name}" for name in THEMES)
    lights = ".mlcd.mlcd-light,.mlcd-light .mlcd,[data-jp-theme-light=true] .mlcd,.vscode-light .mlcd"
    darks = ".mlcd.mlcd-dark,.mlcd-dark .mlcd,[data-jp-theme-light=false] .mlcd,.vscode-dark .mlcd"
    return (
        f".mlcd{{{light}}}\n@media (prefers-color-scheme:dark){{.mlcd{{{dark}}}}}\n"
        f"{lights}{{{light}}}\n{darks}{{{dark}}}\n@media print{{.mlcd,{darks}{{{light}}}}}\n{PICTURE_RULES}\n"
    )
