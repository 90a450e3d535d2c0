"""Idioms of ours for which the field has a term, counted: they may become fewer, never more.

python -m tests.words [ROOT] prints each with its count beside what tests/words.txt allows;
--where says where each stands; --write allows what there is now.
"""

from __future__ import annotations

import argparse
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]

LIMITS: Final = Path(__file__).parent / "words.txt"

FOLDERS: Final = ("passes", "pipeliner", "schedules", "examples", "tests")

QUOTING: Final = (
    "pipeliner/values/released.py",
    "tests/test_released.py",
    "tests/test_words.py",
    "tests/words.py",
)
"""Files that name old words on purpose."""


GAP: Final = "\0"
"""What stands in a pattern for what is no text."""

NOTHING: Final = r"(?!)"
"""Matches nothing."""


class Idiom(NamedTuple):
    """What finds an idiom in texts, comments and strings, and in the rest of the code.

    Names of the code have one meaning; sentences may need the same word in its plain one, as in "the
    remainder of a division" and "what tells two slots apart".
    """

    prose: str
    code: str = NOTHING

    def may_be_in(self, text: str) -> bool:
        """Whether text, comments and strings among the rest, has any of it."""
        return any(
            any(literal in text for literal in _literals(pattern)) and re.search(pattern, text)
            for pattern in self
        )


@cache
def _literals(pattern: str) -> frozenset[str]:
    """For each alternative of ``pattern``, a text that is in all it matches: quick to look for."""
    if pattern == NOTHING:
        return frozenset()
    plain = re.sub(r"\\.|\[[^]]*\]", GAP, pattern)
    while (inner := re.sub(r"\([^()]*\)", GAP, plain)) != plain:
        plain = inner
    plain = re.sub(r".[?*]", GAP, plain)
    return frozenset(max(re.split(f"[{GAP}+.^$]", one), key=len) for one in plain.split("|"))


IDIOMS: Final = {
    "ping-pong (turns, teams)": Idiom(
        r"\bby turns\b|\b(takes?|taking|taken) turns\b|\bteams?\b",
        r"\bby_turns|\btakes?_turns?\b|\.turns import|\bteams?\b|teams_|_teams",
    ),
    "warp specialisation (a role of its own)": Idiom(r"\brole of (its|their) own\b"),
    "non-specialised mainloop (by threads)": Idiom(
        r"\bthreads that copy\b|\bby threads\b|\bwho multiply\b", r"\bby_threads|threads_that_copy"
    ),
    "full/empty mbarrier pair, release (channel, give back)": Idiom(
        r"\bchannel plan\b|\bg(i|a)ve[sn]? (\w+ )?back\b|\bgiving (\w+ )?back\b",
        r"ChannelPlan|\bchannel_plan|\.channels\b(?=.*\bplan\b)",
    ),
    "persistent kernel (walks)": Idiom(
        r"\bwalk(s|ed|ing)? (all|its|their|whole|the) tiles?\b|\bthat walks tiles\b|\bCTAs walk\b",
        r"(Tile|tile|Candidate)\([^()]*\bctas=|walks_(all_|the_)?tiles",
    ),
    "window, flattened view, implicit GEMM (patch, gathers)": Idiom(
        r"\bpatch(es)?\b", r"\b_?patch(es)?\b|\bPATCH(ES)?\b|\bPatch\b|\bgathers\b"
    ),
    "split-K, partial sums (parts)": Idiom(
        r"\bin parts\b|\bparts of (a|the|its) (reduction|sum)|reduce_add|\bsplit reduction\b|\badds_parts",
        r"\bpart_sums\b|added?s?_parts|reduce_add|AddParts",
    ),
    "stationary operand, pinned ring (held)": Idiom(
        r"\bheld (tiles?|operands?|filters?|weights|rings?|[AB])\b|\b(is|was|are) held\b|[\"'.]held\b",
        r"\bheld\b|\bHELD\b|\bheld_|_held\b",
    ),
    "register-staged copy (by way of registers)": Idiom(
        r"\bby way of registers\b|\bwaits? in registers\b", r"by_way_of_registers"
    ),
    "wgmma in flight, wgmma wait (runs on, done)": Idiom(
        r"\bruns? on (behind|while|until)\b|\.done\b[\"']"
    ),
    "transposed operand, rotated swizzle (turned)": Idiom(
        r"\bturned\b(?! out)|\bturns (rows|them) round\b", r"\b_?turned\b|\bTURNED\b|turned_round"
    ),
    "swap A/B (swapped)": Idiom(r"(?<!A and B )(?<!A and B are )(?<!them )\bswapped\b", r"swapped"),
    "dequantised in registers (on its way)": Idiom(r"\bon (its|their|the) way to registers\b"),
    "evict-first (lets go)": Idiom(r"\blets? go of\b"),
    "elementwise (made on its own)": Idiom(r"\bmade (each )?on (its|their) own\b"),
    "depth per ring (apart)": Idiom(
        r"\b(depths?|rings) apart\b|\bapart\.py\b",
        r"\bapart: tuple|\bapart=|\bimport apart|\.apart import",
    ),
    "uncoalesced store (stray)": Idiom(r"\bstray stores?\b", r"\bstrays?\b"),
    "overrunning loads (for nobody)": Idiom(r"\bfor nobody\b(?! reads)", r"copies_for_nobody"),
    "by default (unasked)": Idiom(r"\bunasked\b", r"\bunasked\b|UNASKED"),
    "batch axes (lead)": Idiom(r"\blead (axes|extents)\b", r"\b_?lead\b"),
    "privatisation (freshness)": Idiom(r"\bfreshness\b", r"\bfreshness\b"),
    "lockstep thread group (strand)": Idiom(r"\bstrands?\b", r"\bstrands?\b|\bStrand"),
    "swizzle-width column block (panel)": Idiom(r"\bpanels?\b", r"\b[Pp]anels?\b|\bPANELS?\b"),
    "programmatic dependent launch (early)": Idiom(
        r"\blaunch\.early\b|early launch",
        r"launch\.early\b|\bLaunchPlan\([^()]*early=|early_launch",
    ),
    "zero-initialisation by scale-d = 0 (clearing)": Idiom(r"\bclearing\b", r"\bclearing\b"),
    "K tail (remainder, skips_last)": Idiom(
        r"\bremainder of K\b|\bskips_last\b", r"\bskips_last\b|\.remainder import"
    ),
    "1.06x cuBLAS (of cuBLAS 1.06)": Idiom(r"\bof (cuBLAS|cuDNN) \d"),
    "top-1 (first choice)": Idiom(r"\bfirst choice of everything\b"),
    "error / bound (of what rounding allows)": Idiom(r"\bof what rounding allows\b"),
}
"""What the field says (what stood here), and how that is found."""


def counts(root: Path = ROOT) -> Counter[str]:
    """How often each idiom stands in the project at ``root``: code, tests and texts."""
    found: Counter[str] = Counter(dict.fromkeys(IDIOMS, 0))
    found.update(idiom for idiom, _ in places(root))
    return found


def places(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Each idiom in the project at ``root``, with its file and line."""
    for path in sorted([*root.glob("*.md"), *(p for f in FOLDERS for p in (root / f).rglob("*"))]):
        name = path.relative_to(root).as_posix()
        linked = any(parent.is_symlink() for parent in path.parents)
        if path.suffix in (".py", ".md", ".toml") and name not in QUOTING and not linked:
            text = path.read_text()
            perhaps = {idiom: each for idiom, each in IDIOMS.items() if each.may_be_in(text)}
            prose, code = _divided(text) if perhaps and path.suffix == ".py" else (text, "")
            for idiom, (of_prose, of_code) in perhaps.items():
                for part, pattern in ((prose, of_prose), (code, of_code)):
                    for match in re.finditer(pattern, part):
                        yield idiom, f"{name}:{part.count(chr(10), 0, match.start()) + 1}"


def _divided(text: str) -> tuple[str, str]:
    """Comments and strings of a Python file, and the rest of it, each with blanks for the other."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    prose = [char if char == "\n" else " " for char in text]
    code = list(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for at in range(
                *(starts[row - 1] + column for row, column in (token.start, token.end))
            ):
                prose[at], code[at] = text[at], "\n" if text[at] == "\n" else " "
    return "".join(prose), "".join(code)


def limits() -> dict[str, int]:
    """How often each idiom may stand."""
    lines = [line.rsplit(": ", 1) for line in LIMITS.read_text().splitlines()]
    return {idiom: int(count) for idiom, count in lines}


def main() -> None:
    """Print the counts, or the places; or allow them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--where", action="store_true", help="print where each stands")
    parser.add_argument("--write", action="store_true", help="allow what there is now")
    args = parser.parse_args()
    if args.where:
        for idiom, place in sorted(places(args.root)):
            print(f"{place}: {idiom}")
        return
    found = counts(args.root)
    if args.write:
        LIMITS.write_text("".join(f"{idiom}: {count}\n" for idiom, count in found.items()))
    allowed = limits()
    for idiom, count in found.items():
        print(f"{count:6} of {allowed.get(idiom, 0):5}  {idiom}")
    print(f"{found.total():6} of {sum(allowed.values()):5}")


if __name__ == "__main__":
    main()
