# fish: completes commands and options. What there is to complete comes from the command's own --help.
function __onepass_commands
    onepass --help 2>/dev/null | string match -r '^  [a-z]+  .*' | string replace -r '^  ([a-z]+) +(.*)' '$1\t$2'
end
function __onepass_options
    set -l words (commandline -opc)
    onepass $words[2] --help 2>/dev/null | string match -r '^  (?:-[a-z],)?--[a-z-]+.*' | string replace -r '^  (?:-[a-z],)?(--[a-z-]+)(?: TEXT(?: \.\.\.)?)? +(.*)' '$1\t$2'
end
complete -c onepass -n 'test (count (commandline -opc)) -eq 1' -f -a '(__onepass_commands)'
complete -c onepass -n 'test (count (commandline -opc)) -gt 1; and string match -q -- "-*" (commandline -ct)' -f -a '(__onepass_options)'
