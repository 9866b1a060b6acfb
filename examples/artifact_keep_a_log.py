"""Keep a large log beside the record, and prove later that it is still the same.

python examples/artifact_keep_a_log.py
"""

from __future__ import annotations

import io

import standfast


def main() -> None:
    log = io.BytesIO(b"".join(b"line %d: all is well\n" % n for n in range(100_000)))
    with standfast.open() as sf:
        made = sf.artifacts.put(log, name="build.log", kind="log")
        again = sf.artifacts.put(sf.artifacts.get(made.id), name="build.log", kind="log")
        assert again.id == made.id, "the same bytes under the same name are one artifact"
        print(made.name, made.size_bytes, made.digest)
        print("wrong or missing:", sf.artifacts.verify())


if __name__ == "__main__":
    main()
