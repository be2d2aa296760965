#!/usr/bin/env bash
# Prints the manual page, onepass(1), to standard output: the command's own help in man format. Usage: tools/man.sh COMMAND VERSION
set -euo pipefail
command=$1 version=$2
escape() { sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/"; }
title=$("$command" --help | head -1)
printf '.TH ONEPASS 1 "" "onepass %s" "User Commands"\n.SH NAME\nonepass \\- %s\n.SH SYNOPSIS\n.B onepass\n.I COMMAND\n[OPTIONS] ...\n' "$version" "$(escape <<<"${title#onepass: }")"
printf '.SH DESCRIPTION\n'
"$command" --help | sed -n '3,$p' | awk '{print}' | escape | sed -e 's/^$/.PP/' -e '1i .nf' -e '$a .fi'
"$command" --help | sed -nE 's/^  ([a-z]+)  .*/\1/p' | while read -r name; do
  printf '.SH ONEPASS %s\n' "${name^^}"
  # one section for each part of the help: options as a list, examples unchanged
  "$command" "$name" --help | escape | awk '
    function body(on) { if (on != nf) { print on ? ".nf" : ".fi"; nf = on } }
    /^Usage: /                                { body(0); print ".PP"; print; next }
    /^(Positionals|Options|Examples?):$/      { body(0); part = $1; sub(/:$/, "", part); print ".SS " part; next }
    /^$/                                      { next }
    part ~ /^(Positionals|Options)$/ && /^  [^ ]/ {
      match($0, /[^ ]  +/); if (RSTART == 0) { print ".TP"; print ".B \"" substr($0, 3) "\""; next }
      print ".TP"; print ".B \"" substr($0, 3, RSTART - 2) "\""; print substr($0, RSTART + RLENGTH); next }
    part ~ /^Examples?$/ && /^  /             { body(1); print; next }
    /^[^ ]/                                   { body(0); if (part != "") print ".PP"; part = ""; print; next }
    { sub(/^ +/, ""); print }
    END { body(0) }'
done
cat <<'END'
.SH FILES
.TP
.I $ONEPASS_CACHE_DIR
the folder of kernels on disk; else
.I onepass
in the user's cache folder;
.B none
switches it off
.SH EXIT STATUS
0, or 2 with the error on standard error; 1 for a fault of onepass; 130 after an interrupt.
.SH SEE ALSO
.I /usr/share/doc/libonepass\-dev/docs/command.md
END
