"""What stands in for a module is never in anybody's way."""

from __future__ import annotations

import subprocess
import sys


def told(code: str) -> str:
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


START = f"import sys; sys.path[:0] = {sys.path!r}; from standfast.cli.later import later\n"


def test_it_is_loaded_when_it_is_used_and_not_before() -> None:
    code = (
        "with later('colorsys'): import colorsys as ours\n"
        "print('colorsys' in sys.modules); ours.rgb_to_hsv(0, 0, 0); import colorsys as real\n"
        "print(type(real).__name__, real.rgb_to_hsv is ours.rgb_to_hsv)"
    )
    assert told(START + code).split("\n") == ["False", "module True"]


def test_used_at_once_it_is_the_real_one() -> None:
    code = (
        "with later('colorsys'):\n"
        "    import colorsys as ours; ours.rgb_to_hsv(0, 0, 0); import colorsys as real\n"
        "print(type(real).__name__, sys.modules['colorsys'] is real)"
    )
    assert told(START + code) == "module True"


def test_what_is_there_already_stays() -> None:
    code = (
        "import colorsys\n"
        "with later('colorsys'): import colorsys as same\n"
        "print(same is colorsys, 'rgb_to_hsv' in vars(same))"
    )
    assert told(START + code) == "True True"


def test_what_a_module_does_not_have_is_said_as_ever() -> None:
    code = (
        "with later('colorsys'): import colorsys\ntry: colorsys.nothing\nexcept AttributeError as error: print(error)"
    )
    assert told(START + code) == "module 'colorsys' has no attribute 'nothing'"
