#!/bin/sh
# cli_completion_test.sh: what corral completion prints, in a real bash, zsh and fish.
#
# CORRAL is the path of the command. A shell that isn't installed is skipped.
. "$(dirname "$0")/support/cli.sh"
export CORRAL

: >file-one
chmod +x file-one
HOME=$dir
export HOME

for shell in bash zsh fish; do "$CORRAL" completion $shell >corral.$shell; done

# The typed line | as bash splits it | the one completion in bash | the last word in zsh and fish
cat >table <<'END'
corral r|corral r|run|run
corral --js|corral --js|--json|--json
corral run --aw|corral run --aw|--away|--away
corral run --away s|corral run --away s|stale|stale
corral run --away=s|corral run --away = s|stale|--away=stale
corral run --if-lost k|corral run --if-lost k|kill|kill
corral lock --gr|corral lock --gr|--grace|--grace
corral lock name --gr|corral lock name --gr|--grace|--grace
corral warm --ahead 1m --pat|corral warm --ahead 1m --pat|--patience|--patience
corral storm --mode c|corral storm --mode c|corral|corral
corral --store lm|corral --store lm|lmdb:|lmdb:
corral --store lmdb:./file-o|corral --store lmdb : ./file-o|./file-one|lmdb:./file-one
corral --store=lmdb:./file-o|corral --store = lmdb : ./file-o|./file-one|--store=lmdb:./file-one
corral --store lmdb:x -q get --modt|corral --store lmdb : x -q get --modt|--modtime|--modtime
corral run --modtime ./file-o|corral run --modtime ./file-o|./file-one|./file-one
corral run --ttl 5m ./file-o|corral run --ttl 5m ./file-o|./file-one|./file-one
corral run --ttl 5m -- ./file-o|corral run --ttl 5m -- ./file-o|./file-one|./file-one
corral run -- cat ./file-o|corral run -- cat ./file-o|./file-one|./file-one
corral run cat ./file-o|corral run cat ./file-o|./file-one|./file-one
corral lock run ./file-o|corral lock run ./file-o|./file-one|./file-one
corral lock -w 5 run -- cat ./file-o|corral lock -w 5 run -- cat ./file-o|./file-one|./file-one
corral get -- ./file-o|corral get -- ./file-o|./file-one|./file-one
corral warm ./file-o|corral warm ./file-o|./file-one|./file-one
corral explain stale_|corral explain stale_|stale_if_error=|stale_if_error=
corral help inv|corral help inv|invalidate|invalidate
corral doctor lm|corral doctor lm|lmdb:|lmdb:
corral doctor --lo|corral doctor --lo|--locks|--locks
corral doctor lmdb:./file-o|corral doctor lmdb : ./file-o|./file-one|lmdb:./file-one
corral flights --w|corral flights --w|--watch|--watch
corral log --ev|corral log --ev|--event|--event
corral completion z|corral completion z|zsh|zsh
END

# bash_replies WORD...: what bash completes the last word to, a line each.
bash_replies() {
  bash --norc --noprofile -c '
    . ./corral.bash
    complete -p corral >complete.out || exit 1
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _corral corral "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf "%s\n" "${COMPREPLY[@]}"' bash "$@" 2>bash.err
}

in_bash() {
  while IFS='|' read -r typed words reply last; do
    # shellcheck disable=SC2086 # words
    got=$(bash_replies $words)
    [ "$got" = "$reply" ] && [ ! -s bash.err ] && continue
    echo "# $typed: $got, not $reply; $(cat bash.err)"
    return 1
  done <table
  [ "$(cat complete.out)" = "complete -F _corral corral" ]
}

# typed_in_zsh LINE...: the lines of a terminal's zsh, each after a Tab behind it.
cat >type.zsh <<'END'
zmodload zsh/zpty
zpty shell TERM=dumb zsh -f -i || exit 1
zpty -w shell 'PS1= PS2= fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D'
zpty -w shell 'show() { print -r -- "$BUFFER" >>typed; BUFFER= }; zle -N show'
zpty -w shell 'bindkey "^X" show; bindkey "^I" complete-word; : >typed'
looks=0 count=0
until [[ -e typed ]]; do
  zpty -r -t shell line
  ((++looks > 1500)) && exit 1
  sleep 0.02
done
while IFS= read -r line; do
  zpty -w -n shell "$line"$'\t\C-X'
  ((count++))
  looks=0
  until [[ $(wc -l <typed) -ge $count ]]; do
    zpty -r -t shell line
    ((++looks > 1500)) && exit 1
    sleep 0.02
  done
done
zpty -d shell
END
in_zsh() {
  cp corral.zsh _corral && rm -f typed && cut -d'|' -f1 table | zsh -f type.zsh >zsh.out 2>&1
  while IFS='|' read -r typed words reply last <&3; do
    read -r got <&4
    [ "${got##* }" = "$last" ] || [ "${got##* }" = "$last=" ] && continue
    echo "# $typed: $got, not $last"
    return 1
  done 3<table 4<typed
}

fish_replies() {
  fish --no-config -c 'source corral.fish; complete -C $argv[1]' "$1" 2>fish.err
}
in_fish() {
  while IFS='|' read -r typed words reply last; do
    got=$(fish_replies "$typed" | cut -f1)
    [ "$got" = "$last" ] && [ ! -s fish.err ] && continue
    echo "# $typed: $got, not $last; $(head -c 300 fish.err)"
    return 1
  done <table
}

# The subcommands that corral says it has, a line each.
subcommands() { "$CORRAL" 2>&1 | sed 's/.*accepted are //' | tr -d ' ' | tr , '\n'; }

# Each option that begins a line of a subcommand's help is among what bash completes.
all_options() {
  for sub in '' $(subcommands | grep -vx -e help -e version); do
    # shellcheck disable=SC2086
    bash_replies corral $sub -- >replies
    for option in $("$CORRAL" $sub --help | sed -n 's/^  \(-.*\)/\1/p' | sed 's/  .*//' |
      grep -o -e '--[a-z][a-z-]*'); do
      grep -qx -e "$option" replies && continue
      echo "# corral $sub $option isn't completed"
      return 1
    done
  done
}

all_subcommands() {
  bash_replies corral '' | sort >replies
  subcommands | sort >wanted
  [ "$(wc -l <wanted)" -ge 12 ] && diff wanted replies
}

# Words that an option takes, and no other: what is completed is what is accepted.
all_words() {
  for option in 'run --away' 'run --at-deadline' 'run --if-lost' 'storm --mode'; do
    # shellcheck disable=SC2086
    bash_replies corral $option '' >replies
    # shellcheck disable=SC2086
    status 125 "$CORRAL" $option none-of-them -- true || return 1
    lines 1 err && [ "$(wc -l <replies)" -ge 2 ] || return 1
    while read -r word; do
      sed "s/.*accepted[:;]//" err | grep -qw -e "$word" && continue
      echo "# corral $option $word: $(cat err)"
      return 1
    done <replies
  done
}

wrong_use() {
  status 125 "$CORRAL" completion && [ ! -s out ] && status 125 "$CORRAL" completion tcsh &&
    status 125 "$CORRAL" completion bash zsh &&
    status 125 sh -c '"$CORRAL" completion bash >/dev/full'
}

no_store() { env -u HOME CORRAL_STORE=nothing: "$CORRAL" completion bash | cmp -s - corral.bash; }

if command -v bash >/dev/null; then
  check "bash completes subcommands, options, values and files" in_bash
  check "all options of the help are completed" all_options
  check "all subcommands are completed" all_subcommands
  check "the words of an option are those that are accepted" all_words
else
  skip "bash completes" "there is no bash"
fi
if command -v zsh >/dev/null; then
  check "zsh completes the same" in_zsh
else
  skip "zsh completes the same" "there is no zsh"
fi
if command -v fish >/dev/null; then
  check "fish completes the same" in_fish
else
  skip "fish completes the same" "there is no fish"
fi
check "another shell, and a full disk, are errors" wrong_use
check "it needs no store" no_store
exit $failed
