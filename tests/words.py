"""Idioms of ours for which the field has a term, counted: they may become fewer, never more.

python -m tests.words [ROOT] prints each with its count beside what tests/words.txt allows;
--write allows what there is now.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

LIMITS: Final = Path(__file__).parent / "words.txt"

FOLDERS: Final = ("passes", "pipeliner", "schedules", "examples", "tests")

QUOTING: Final = ("pipeliner/released.py", "tests/words.py", "tests/test_words.py")
"""Files that name old words on purpose."""

IDIOMS: Final = {
    "ping-pong (turns, teams)": r"\b(by|tak\w+|in) turns\b|_?\bteams?\b|\bteams_|_teams\b",
    "warp specialisation (a role of its own)": r"\brole of (its|their) own\b",
    "non-specialised mainloop (by threads)": r"\bthreads that copy\b|\bby[ _]threads\b|\bwho multiply\b",
    "full/empty mbarrier pair, release (channel, give back)": r"\bchannel plan|ChannelPlan"
    r"|\bg(i|a)ve[sn]? (\w+ )?back\b|\bgiving (\w+ )?back\b",
    "persistent kernel (walks)": r"\bwalk(s|ed|ing)? (all|its|their|whole|the) tiles?\b"
    r"|\bthat walks\b|\bCTAs walk\b|\bctas=",
    "window, flattened view, implicit GEMM (patch, gathers)": r"\bpatch(es)?\b|\bPatch\b|\bgathers\b",
    "split-K, partial sums (parts)": r"\bin parts\b|\bparts of (a|the|its) (reduction|sum)|reduce_add"
    r"|\bsplit reduction\b|adds_parts|\bpart_sums\b",
    "stationary operand, pinned ring (held)": r"\bheld\b",
    "register-staged copy (by way of registers)": r"\bby way of registers\b|\bwaits? in registers\b",
    "wgmma in flight, wgmma wait (runs on, done)": r"\bruns? on (behind|while|until)\b|\.done\b\W*\"",
    "transposed operand, rotated swizzle (turned)": r"\bturned\b|\bturns (rows|them) round\b",
    "swap A/B (swapped)": r"\bswapped\b",
    "dequantised in registers (on its way)": r"\bon (its|their|the) way to registers\b",
    "evict-first (lets go)": r"\blets? go of\b",
    "elementwise (made on its own)": r"\bmade (each )?on (its|their) own\b",
    "depth per ring (apart)": r"\bapart\b",
    "uncoalesced store (stray)": r"\bstray\b",
    "overrunning loads (for nobody)": r"\bfor nobody\b",
    "by default (unasked)": r"\bunasked\b",
    "batch axes (lead)": r"\blead\b",
    "privatisation (freshness)": r"\bfreshness\b",
    "lockstep thread group (strand)": r"\bstrands?\b|\bStrand",
    "swizzle-width column block (panel)": r"\bpanels?\b|\bPanels?\b",
    "programmatic dependent launch (early)": r"\.early\b(?!\")|\bearly=",
    "zero-initialisation by scale-d = 0 (clearing)": r"\bclearing\b",
    "K tail (remainder, skips_last)": r"\bremainder\b|\bskips_last\b",
    "1.06x cuBLAS (of cuBLAS 1.06)": r"\bof (cuBLAS|cuDNN) \d",
    "top-1 (first choice)": r"\bfirst choice of everything\b",
    "error / bound (of what rounding allows)": r"\bof what rounding allows\b",
}
"""What the field says (what stood here), and how that is found."""


def counts(root: Path = ROOT) -> Counter[str]:
    """How often each idiom stands in the project at ``root``: code, tests and texts."""
    found: Counter[str] = Counter(dict.fromkeys(IDIOMS, 0))
    for path in sorted([*root.glob("*.md"), *(p for f in FOLDERS for p in (root / f).rglob("*"))]):
        name = path.relative_to(root).as_posix()
        linked = any(parent.is_symlink() for parent in path.parents)
        if path.suffix in (".py", ".md", ".toml") and name not in QUOTING and not linked:
            text = path.read_text()
            for idiom, pattern in IDIOMS.items():
                found[idiom] += len(re.findall(pattern, text))
    return found


def limits() -> dict[str, int]:
    """How often each idiom may stand."""
    lines = [line.rsplit(": ", 1) for line in LIMITS.read_text().splitlines()]
    return {idiom: int(count) for idiom, count in lines}


def main() -> None:
    """Print the counts; or allow them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--write", action="store_true", help="allow what there is now")
    args = parser.parse_args()
    found = counts(args.root)
    if args.write:
        LIMITS.write_text("".join(f"{idiom}: {count}\n" for idiom, count in found.items()))
    allowed = limits()
    for idiom, count in found.items():
        print(f"{count:6} of {allowed.get(idiom, 0):5}  {idiom}")
    print(f"{found.total():6} of {sum(allowed.values()):5}")


if __name__ == "__main__":
    main()
