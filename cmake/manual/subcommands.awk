# subcommands.awk: a manual page for each subcommand, cut from corral(1).
#
#   awk -v out=FOLDER -f subcommands.awk docs/corral.1
#
# A page has the subcommand's part of the synopsis and its section, whose first line, a comment, says
# what the subcommand does. What it refers to by section is in corral(1).

/^\.Dd / { date = $0 }
/^\.Sh / { part = substr($0, 5) }

# ---- the synopsis: an entry begins with .Nm ----
part == "SYNOPSIS" && /^\.Nm/ { entries++ }
part == "SYNOPSIS" && entries > 0 {
  entry[entries] = entry[entries] whole_name($0) "\n"
  if ($0 ~ /^\.Cm [a-z]+/ && entry_of[entries] == "") entry_of[entries] = $2
}

# The macro's default is the page's own name.
function whole_name(line) {
  if (line == ".Nm" || line ~ /^\.Nm ([.,;:)]|Ns )/) sub(/^\.Nm/, ".Nm corral", line)
  return line
}

# ---- the sections ----
/^\.Ss corral / {
  name = $3
  order[++count] = name
  next
}
/^\.S[hs] / { name = "" }
name != "" && /^\.\\" / && about[name] == "" {
  about[name] = substr($0, 5)
  next
}
name != "" {
  if ($0 ~ /^\.Sx /) {
    end = $3
    $0 = ".Em " $2 "\nof\n.Xr corral 1" (end == "" ? "" : " " end)
  }
  section[name] = section[name] whole_name($0) "\n"
}

END {
  for (i = 1; i <= count; i++) {
    name = order[i]
    file = out "/corral-" name ".1"
    print ".\\\" Cut from corral.1 by subcommands.awk." > file
    print date "\n.Dt CORRAL-" toupper(name) " 1\n.Os\n.Sh NAME\n.Nm corral-" name > file
    print ".Nd " about[name] "\n.Sh SYNOPSIS" > file
    for (k = 1; k <= entries; k++)
      if (entry_of[k] == name) printf "%s", entry[k] > file
    printf ".Sh DESCRIPTION\n%s", section[name] > file
    print ".Sh SEE ALSO\n.Xr corral 1 ,\n.Xr corral-uri 7" > file
    close(file)
  }
}
