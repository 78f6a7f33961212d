# functions.awk: the manual pages of section 3, made from the comments of the public headers.
#
#   awk -v out=FOLDER -v date="November 21, 2026" -f functions.awk corral.h corral/lock.h ...
#
# The first header has the table of statuses. A comment belongs to the declarations below it, up to
# the next comment or empty line; they share a page, and each name has a file. A file's first
# comment is a section of corral.3.

function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }

# One line of text, with names and constants in bold.
function text(s) {
  gsub(/\\/, "\\e", s)
  gsub(/corral_[a-z0-9_]+/, "\\fB&\\fP", s)
  gsub(/CORRAL_[A-Z0-9_]+/, "\\fB&\\fP", s)
  gsub(/`[^`]+`/, "\\fI&\\fP", s)
  gsub(/`/, "", s)
  while (match(s, /\. [A-Z\\]/))
    s = substr(s, 1, RSTART) "\n" substr(s, RSTART + 2)
  if (s ~ /^[.']/) s = "\\&" s
  return s
}

# A comment's lines: paragraphs, items that begin with "-", and indented code.
function body(s, file,    lines, n, i, line, mode) {
  n = split(s, lines, "\n")
  mode = "text"
  for (i = 1; i <= n; i++) {
    line = lines[i]
    if (line ~ /^[ \t]*$/) {
      if (mode == "code") print ".Ed" > file
      if (mode == "item") print ".El" > file
      mode = "text"
      if (i < n && lines[i + 1] !~ /^ /) print ".Pp" > file
    } else if (line ~ /^ - /) {
      if (mode != "item") print ".Bl -bullet" > file
      mode = "item"
      print ".It\n" text(substr(line, 4)) > file
    } else if (line ~ /^  / && mode != "item") {
      if (mode != "code") print ".Bd -literal -offset indent" > file
      mode = "code"
      gsub(/\\/, "\\e", line)
      line = substr(line, 3)
      print (line ~ /^[.']/ ? "\\&" : "") line > file
    } else {
      print text(trim(line)) > file
    }
  }
  if (mode == "code") print ".Ed" > file
  if (mode == "item") print ".El" > file
}

# The first sentence, without its stop.
function summary(s) {
  gsub(/\n/, " ", s)
  sub(/[.:;] .*/, "", s)
  sub(/[.:]$/, "", s)
  gsub(/`/, "", s)
  gsub(/ +/, " ", s)
  return trim(s)
}

function name_of(prototype) {
  match(prototype, /[a-z_0-9]+\(/)
  return substr(prototype, RSTART, RLENGTH - 1)
}

function begin_page(file, title, names, about) {
  print ".\\\" Made from a public header by functions.awk." > file
  print ".Dd " date "\n.Dt " toupper(title) " 3\n.Os\n.Sh NAME" > file
  n_names = split(names, list, " ")
  for (k = 1; k <= n_names; k++) print ".Nm " list[k] (k < n_names ? " ," : "") > file
  print ".Nd " about > file
}

function show_function(prototype, file,    name, args, n, a, i) {
  name = name_of(prototype)
  args = prototype
  sub(/^[^(]*\(/, "", args)
  sub(/\);$/, "", args)
  print ".Ft \"" trim(substr(prototype, 1, index(prototype, name "(") - 1)) "\"" > file
  print ".Fo " name > file
  n = split(args, a, /, */)
  for (i = 1; i <= n; i++) print ".Fa \"" a[i] "\"" > file
  print ".Fc" > file
}

# The statuses that the comment names, in the table's order.
function errors(s, file,    i, any) {
  for (i = 1; i <= statuses; i++)
    if (s ~ ("CORRAL_" status[i] "([^A-Z0-9_]|$)")) {
      if (!any++) print ".Sh ERRORS\n.Bl -tag -width Ds" > file
      print ".It Dv CORRAL_" status[i] "\n" text(meaning[i]) > file
    }
  if (any) print ".El" > file
}

function see_also(file) {
  print ".Sh SEE ALSO\n.Xr corral 3 ,\n.Xr corral-options 7" > file
}

function remember(title, names, about) {
  if (pages == 0 || in_part[pages] != part) parts[part] = 1
  page[++pages] = title
  page_names[pages] = names
  page_about[pages] = about
  in_part[pages] = part
}

function flush(    title, names, file, i, about, n, all) {
  if (count == 0 && (type == "" || type_name == "corral")) return
  about = summary(comment)
  if (count > 0) {
    for (i = 1; i <= count; i++) names = names (i > 1 ? " " : "") name_of(prototype[i])
  } else {
    names = type_name
  }
  n = split(names, all, " ")
  title = all[1]
  file = out "/" title ".3"
  begin_page(file, title, names, about)
  print ".Sh LIBRARY\nlibcorral, -lcorral\n.Sh SYNOPSIS\n.In " header > file
  for (i = 1; i <= count; i++) show_function(prototype[i], file)
  if (count == 0) {
    gsub(/\\/, "\\e", type)
    print ".Bd -literal\n" type "\n.Ed" > file
  }
  print ".Sh DESCRIPTION" > file
  body(comment, file)
  errors(comment, file)
  see_also(file)
  close(file)
  for (i = 2; i <= n; i++) {
    print ".so man3/" title ".3" > (out "/" all[i] ".3")
    close(out "/" all[i] ".3")
  }
  remember(title, names, about)
  count = 0
  type = type_name = ""
}

FNR == 1 {
  flush()
  header = FILENAME
  sub(/.*include\//, "", header)
  comment = ""
  intro = 1
  part = header
  headers[++header_count] = header
}

# ---- the table of statuses ----
/^  X\(E[A-Z]+, -[0-9]+, "/ && NR == FNR {
  status[++statuses] = substr($1, 3, length($1) - 3)
  meaning[statuses] = $0
  sub(/^[^"]*"/, "", meaning[statuses])
  sub(/"\).*/, "", meaning[statuses])
}

# ---- comments ----
/^\/\* ---- / {
  flush()
  part = $0
  sub(/^\/\* -+ /, "", part)
  sub(/ -+ \*\/$/, "", part)
  comment = ""
  next
}
/^\/\*/ {
  flush()
  inside = 1
  comment = ""
}
inside {
  line = $0
  ends = line ~ /\*\/$/
  sub(/^(\/\*| \*)/, "", line)
  sub(/ ?\*\/$/, "", line)
  sub(/^ /, "", line)
  comment = comment (comment == "" ? "" : "\n") line
  if (ends) {
    inside = 0
    if (intro) {
      introduction[header] = comment
      intro = 0
      comment = ""
    }
  }
  next
}

# ---- declarations ----
/^typedef / && comment != "" && !in_type {
  in_type = 1
  type = ""
}
in_type {
  type = type (type == "" ? "" : "\n") $0
  if ($0 ~ /^typedef .*;$/ || $0 ~ /^}.*;$/ || (type ~ /^typedef [^{]*$/ && $0 ~ /;$/)) {
    in_type = 0
    type_name = type
    gsub(/\n/, " ", type_name)
    if (type_name ~ /\(/ && type_name !~ /\{/) type_name = name_of(type_name)
    else sub(/;$/, "", type_name) sub(/.* /, "", type_name)
    flush()
    comment = ""
  }
  next
}
/^CORRAL_API / {
  declaration = ""
  in_declaration = 1
}
in_declaration {
  declaration = declaration (declaration == "" ? "" : " ") trim($0)
  if ($0 ~ /;$/) {
    in_declaration = 0
    sub(/^CORRAL_API /, "", declaration)
    prototype[++count] = declaration
  }
  next
}
/^$/ {
  flush()
  comment = ""
}

# ---- corral.3 ----
END {
  flush()
  file = out "/corral.3"
  begin_page(file, "corral", "corral", "the library that ends cache stampedes")
  print ".Sh LIBRARY\nlibcorral, -lcorral\n.Sh SYNOPSIS" > file
  for (h = 1; h <= header_count; h++) print ".In " headers[h] > file
  print ".Pp\n.Li cc program.c $(pkg-config --cflags --libs corral)\n.Sh DESCRIPTION" > file
  for (h = 1; h <= header_count; h++) {
    print ".Ss " headers[h] > file
    body(introduction[headers[h]], file)
  }
  print ".Sh FUNCTIONS AND TYPES\n.Bl -tag -width Ds" > file
  for (i = 1; i <= pages; i++) {
    n = split(page_names[i], all, " ")
    printf ".It" > file
    for (k = 1; k <= n; k++) printf " Xr %s 3%s", all[k], (k < n ? " ," : "") > file
    print "\n" text(page_about[i]) > file
  }
  print ".El\n.Sh SEE ALSO\n.Xr corral 1 ,\n.Xr corral-options 7 ,\n.Xr corral-uri 7" > file
}
