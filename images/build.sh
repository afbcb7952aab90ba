#!/usr/bin/env bash
# Build the image of a node, or of an agent, and print its size:
#
#     images/build.sh [agent] [amd64|arm64]       (makes edgebed-node:amd64, edgebed-agent:arm64, ...)
#
# Without an architecture, for the Docker Engine's own: then it is edgebed-node or edgebed-agent, too, which runs are
# made from. BASE is the image to build upon, if not the Dockerfile's own. PIP is the pip that fetches the wheels,
# configured as it is. The build itself reaches for nothing but the base, and for iproute2 if an agent's base lacks it.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=node
if [ "${1:-}" = agent ]; then
    kind=agent
    shift
fi
own=$(docker version --format '{{.Server.Arch}}')
architecture=${1:-$own}
case $architecture in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    *) echo "images/build.sh: there is no image for $architecture: torch comes for amd64 and arm64 only" >&2; exit 2 ;;
esac
if [ $kind = agent ]; then
    requirements=images/agent/requirements.txt wheels=build/wheels/agent network=default
else
    requirements=images/requirements-$machine.txt wheels=build/wheels network=none
fi
${PIP:-python3 -m pip} download --quiet --no-deps --only-binary=:all: --dest $wheels \
    --implementation cp --python-version 3.11 --platform "manylinux_2_28_$machine" --platform "manylinux2014_$machine" \
    --requirement "$requirements" || {
    echo "images/build.sh: pip found no wheel for $machine (docs/guides/images.md, \"What pip must find\")" >&2
    exit 1
}
docker build --platform "linux/$architecture" --network $network ${BASE:+--build-arg "BASE=$BASE"} \
    --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/wheels \
    --file images/$kind/Dockerfile --tag "edgebed-$kind:$architecture" .
if [ "$architecture" = "$own" ]; then
    docker tag "edgebed-$kind:$architecture" "edgebed-$kind"
fi
docker image inspect --format "edgebed-$kind:$architecture {{.Size}} bytes" "edgebed-$kind:$architecture"
