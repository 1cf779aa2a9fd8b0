# Completion of fab in bash, as `fab --print-completion-script bash` prints it.
_ranklift_fab() {
    local answer line value typed="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    answer=$("${COMP_WORDS[0]}" --complete -- bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
    if [ "${answer%%$'\t'*}" = :files ]; then
        compopt -o default
        return
    fi
    while IFS= read -r line; do
        value="${line%%$'\t'*}"
        case $value in
            '') continue ;;
            # bash inserts a value as it is: a file's name could hold a command.
            *[!A-Za-z0-9_@%+=:,./-]*)
                case $typed in [\"\']*) continue ;; esac
                printf -v value %q "$value"
                ;;
        esac
        COMPREPLY+=("$value")
    done <<<"$answer"
}
complete -o nosort -F _ranklift_fab fab
