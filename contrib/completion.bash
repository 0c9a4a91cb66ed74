# SPDX-License-Identifier: Apache-2.0
#
# Completion for bash of the programs beside ctrun (whose own script ctrun prints): the options that
# --help lists, and the words that may stand for a value.
_ctrun_help()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} values files=
    if [[ $cur == '=' ]]; then
        cur=
    elif [[ $prev == '=' ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    values=$("$1" --help 2>/dev/null </dev/null | awk -v name="${prev//_/-}" \
        '$1 == name && $2 ~ /\|/ { gsub(/\|/, " ", $2); print $2 }')
    if [[ $prev == -* && $values ]]; then
        [[ $values == *[[:upper:]]* ]] && files=-f # the name of one: FILE|auto
        COMPREPLY=($(compgen $files -W "${values//[[:upper:]]/}" -- "$cur"))
    elif [[ $cur == -* ]]; then
        values=$("$1" --help 2>/dev/null </dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u)
        COMPREPLY=($(compgen -W "$values" -- "${cur//_/-}"))
    else
        COMPREPLY=($(compgen -f -- "$cur"))
    fi
}
complete -o filenames -F _ctrun_help ctrdzvd ctrun-stat ctrun-train
