"""The patterns of `gate add --preset`, for one kind of action in the tools that people use for it.

Each pattern of a preset becomes a gate of its own, which `gate list` shows and `gate remove` removes. A command inside
a script is not in the text of the call, so no pattern matches it. `standfast install git-hooks` stops a push in git
itself.
"""

from __future__ import annotations

from standfast import serial
from standfast.errors import InvalidInput

PRESETS: dict[str, tuple[str, ...]] = {
    "git-push": ("git push*", "git send-pack*", "git subtree push*", "git lfs push*", "gh pr merge*"),
    "publish": (
        "npm publish*",
        "pnpm publish*",
        "yarn publish*",
        "bun publish*",
        "lerna publish*",
        "twine upload*",
        "uv publish*",
        "poetry publish*",
        "hatch publish*",
        "pdm publish*",
        "flit publish*",
        "cargo publish*",
        "gem push*",
        "docker push*",
        "docker buildx build --push*",
        "podman push*",
        "helm push*",
        "mvn deploy*",
        "mvn clean deploy*",
        "*gradle* publish*",
        "nuget push*",
        "gh release create*",
        "goreleaser release*",
    ),
    "terraform": (
        "terraform apply*",
        "terraform destroy*",
        "terraform import*",
        "terraform state rm*",
        "terraform state mv*",
        "terraform state push*",
        "tofu apply*",
        "tofu destroy*",
        "tofu import*",
        "tofu state rm*",
        "tofu state mv*",
        "tofu state push*",
        "terragrunt apply*",
        "terragrunt destroy*",
        "terragrunt run-all apply*",
        "terragrunt run-all destroy*",
    ),
    "kubectl-delete": (
        "kubectl delete*",
        "kubectl drain*",
        "kubectl replace --force*",
        "oc delete*",
        "helm uninstall*",
        "helm delete*",
    ),
}


def preset_patterns(name: str) -> tuple[str, ...]:
    """The patterns of a preset. Raises InvalidInput for an unknown one."""
    found = PRESETS.get(name)
    if found is None:
        known = ", ".join(PRESETS)
        raise InvalidInput(f"there is no preset {serial.clean(name, 40)!r}; there are {known}", "--preset git-push")
    return found
