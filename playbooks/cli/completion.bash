# Completion of fab in bash, as `fab --print-completion-script bash` prints it.
_ranklift_fab() {
    local answer line
    COMPREPLY=()
    answer=$("${COMP_WORDS[0]}" --complete -- bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
    if [ "${answer%%$'\t'*}" = :files ]; then
        compopt -o default
        return
    fi
    while IFS= read -r line; do
        [ -n "$line" ] && COMPREPLY+=("${line%%$'\t'*}")
    done <<<"$answer"
}
complete -o nosort -F _ranklift_fab fab
