"""CPython's own SHA-256 and BLAKE2b. `hashlib` loads OpenSSL first, which takes 3 to 6 ms at every start.

Use it for small inputs. For large inputs use `hashlib`, where OpenSSL is faster.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:
        from hashlib import sha256

__all__ = ["blake2b", "sha256"]
