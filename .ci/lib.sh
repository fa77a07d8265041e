# Shell functions shared by ./setup, .ci/run and .ci/fresh: messages, package installation, checked downloads.
# Sourced, never run; the caller has `set -euo pipefail` and defines ROOT, the repository's folder.

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Names of the packages in the given sections of packages.txt.
packages_in() {
  local wanted=" $* "
  while read -r name section _; do
    [[ -z $name || $name == \#* ]] && continue
    if [[ $wanted == *" $section "* ]]; then printf '%s\n' "$name"; fi
  done < "$ROOT/packages.txt"
}

# Runs a command as root: directly, or with sudo.
as_root() {
  if [[ $EUID -eq 0 ]]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo "$@"
  else
    die "need root to run '$*': run as root, or install sudo"
  fi
}

require_debian() {
  command -v dpkg-query > /dev/null && command -v apt-get > /dev/null && return
  die "this system has no apt; install the counterparts of these packages by hand, then run
  cmake --workflow --preset check
$(packages_in build test | sed 's/^/  /')"
}

# Installs those packages of the sections that are missing, and says which; asks the network only if one is.
install_packages() {
  require_debian
  local want missing
  mapfile -t want < <(packages_in "$@")
  # dpkg-query fails when it does not know a name; what it prints for the others still counts.
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${want[@]}" 2> /dev/null | sed -n 's/^ii  *//p' || true)
  mapfile -t missing < <(comm -23 <(printf '%s\n' "${want[@]}" | sort -u) <(sort -u <<< "$installed"))
  if [[ ${#missing[@]} -eq 0 ]]; then return; fi
  say "installing ${#missing[@]} of ${#want[@]} packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get -qq update || die "apt-get update failed: check the network and /etc/apt"
  as_root apt-get -qq install -y --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" > /dev/null ||
    die "apt-get could not install: ${missing[*]} (this list is made for Debian 12)"
}

# Compiler processes to run at once: one a core, but no more than memory allows at 1.5 GB each.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo)
  if [[ $memory -lt 1 ]]; then memory=1; fi
  if [[ $cores -lt $memory ]]; then echo "$cores"; else echo "$memory"; fi
}

has_sha256() { [[ -f $1 ]] && [[ $(sha256sum < "$1") == "$2"* ]]; }

# keep FILE SHA256 DESTINATION SOURCE_NAME: moves FILE to DESTINATION in one step if its SHA-256 is the pinned one.
keep() {
  has_sha256 "$1" "$2" ||
    die "$4: SHA-256 is $(sha256sum < "$1" | cut -d' ' -f1), expected $2; the file upstream changed or the download is damaged"
  mkdir -p "$(dirname "$3")"
  cp "$1" "$3.$$"
  mv -f "$3.$$" "$3"
}
