"""Two versions of an agent share one customer's profile: neither loses what the other wrote."""

from dataclasses import dataclass, field, replace

import standfast


@dataclass
class OldProfile:
    name: str
    email: str = ""
    visits: int = 0


@dataclass
class Profile:
    """A year later: a field was renamed and one was added."""

    name: str
    mail: str = field(default="", metadata={"was": "email"})
    visits: int = 0
    sentiment: float = 0.0


def visited(profile: Profile) -> Profile:
    return replace(profile, visits=profile.visits + 1, sentiment=0.8)


def visited_before(profile: OldProfile) -> OldProfile:
    return replace(profile, visits=profile.visits + 1)


with standfast.open() as sf:
    sf.state.set("customer:7", {"name": "Ada", "email": "ada@example.org", "visits": 0}, namespace="shop")
    sf.state.update("customer:7", visited, namespace="shop", returns=Profile)
    sf.state.update("customer:7", visited_before, namespace="shop", returns=OldProfile)
    found = sf.state.get("customer:7", namespace="shop", returns=Profile)
    print(found.value)

    # Compare-and-set decides between two writers.
    try:
        sf.state.swap("customer:7", {}, version=found.version - 1, namespace="shop")
    except standfast.VersionConflict:
        print("another process was faster: nothing was written")
    sf.state.delete("customer:7", namespace="shop")
