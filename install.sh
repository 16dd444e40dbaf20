#!/bin/sh
# Installs CodefyUI for the current user:
#
#   curl -fsSL <address of this file> | sh
#
# CODEFYUI_RELEASE_TAG   the release to install, such as 0.1.0 (default: the newest)
# CODEFYUI_DIR           where to (default: ~/CodefyUI)
# CODEFYUI_GPU           the build of PyTorch: auto, cpu, cu130, rocm6.3 ... (default: auto)
# CODEFYUI_INSTALL_FROM  a git address or a folder (default: the project's repository)
set -eu

say() { echo "install: $*" >&2; }

fail() {
    say "$*"
    exit 1
}

release_tags() { # newest first
    git ls-remote --tags --refs "$from" | sed 's|.*refs/tags/||' |
        grep -E '^v?[0-9]+\.[0-9]+\.[0-9]+$' | sed -e 's/^v\(.*\)/\1 v\1/' -e t -e 's/\(.*\)/\1 \1/' |
        sort -t. -k1,1nr -k2,2nr -k3,3nr | sed 's/.* //'
}

chosen_tag() {
    tags=$(release_tags) || fail "can't read the releases of $from"
    wanted=${CODEFYUI_RELEASE_TAG:-}
    for tag in $tags; do
        if [ -z "$wanted" ] || [ "${tag#v}" = "${wanted#v}" ]; then
            echo "$tag"
            return
        fi
    done
    fail "$from has no release ${wanted:-at all}. It has: $(echo "$tags" | head -5 | tr '\n' ' ')"
}

check_out() {
    if [ -d "$dir/.git" ]; then
        git -C "$dir" fetch --quiet --tags --force "$from"
        git -C "$dir" checkout --quiet "$tag"
    elif [ -e "$dir" ] && [ -n "$(ls -A "$dir")" ]; then
        fail "$dir is there already and isn't a checkout of CodefyUI. Choose another folder with CODEFYUI_DIR."
    else
        git -c advice.detachedHead=false clone --quiet --branch "$tag" "$from" "$dir"
    fi
}

put_on_path() {
    mkdir -p "$HOME/.local/bin"
    ln -sf "$dir/cdui" "$HOME/.local/bin/cdui"
    case :$PATH: in
        *:"$HOME/.local/bin":*) say "done. Start with: cdui start" ;;
        *) say "done. Start with: $HOME/.local/bin/cdui start (open a new shell, or put $HOME/.local/bin on PATH)" ;;
    esac
}

main() {
    command -v git >/dev/null 2>&1 || fail "git is needed; install it and run this again"
    from=${CODEFYUI_INSTALL_FROM:-https://github.com/CodefyUI/CodefyUI.git}
    dir=${CODEFYUI_DIR:-$HOME/CodefyUI}
    tag=$(chosen_tag)
    say "CodefyUI $tag into $dir"
    check_out
    "$dir/cdui" install
    put_on_path
}

main "$@" </dev/null
