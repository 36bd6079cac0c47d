package intent

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"comet/models"
)

// setAliases sets the words that name each field: all of its name, "issue" for issue_number and "type" for
// entityType where no other field has it, and words that stand for these.
func (f *form) setAliases() {
	count := map[string]int{}
	for _, field := range f.fields {
		count[f.shortName(field)]++
	}
	for _, field := range f.fields {
		field.aliases = [][]string{field.words}
		short := f.shortName(field)
		if count[short] > 1 && len(field.words) > 1 {
			continue
		}
		field.aliases = append(field.aliases, []string{short})
		for said, names := range f.names {
			if slices.Contains(names, short) {
				field.aliases = append(field.aliases, []string{said})
			}
		}
		slices.SortFunc(field.aliases, func(a, b []string) int { return cmp.Or(cmp.Compare(len(b), len(a)), slices.Compare(a, b)) })
	}
}

func (f *form) shortName(field *field) string {
	n := len(field.words)
	switch {
	case n == 0:
		return ""
	case n > 1 && f.lists["generic"][field.words[n-1]]:
		return field.words[n-2]
	}
	return field.words[n-1]
}

// nameAt returns how many tokens from i on are a name, 0 for none.
func (f *form) nameAt(i int, name []string) int {
	if t := f.clause.tokens[i]; t.kind == identifier && slices.Equal(wordsOf(t.text), name) {
		return 1
	}
	for k, w := range name {
		if i+k >= len(f.clause.tokens) || f.clause.tokens[i+k].kind != word || strings.TrimSuffix(f.clause.tokens[i+k].plain, "s") != strings.TrimSuffix(w, "s") {
			return 0
		}
	}
	return len(name)
}

// fillNamed sets fields to the values that follow their names.
func (f *form) fillNamed() {
	for _, field := range f.fields {
		for _, name := range field.aliases {
			for i := range f.clause.tokens {
				if n := f.nameAt(i, name); n > 0 && !field.set && !f.named[i] {
					f.fillAfter(field, i, i+n)
				}
			}
		}
	}
}

// fillAfter sets a field to the value after its name, which are the tokens from start to end.
func (f *form) fillAfter(field *field, start, end int) {
	tokens, explicit := f.clause.tokens, false
	for ; end < len(tokens) && (f.has("connectives", tokens[end]) || f.has("links", tokens[end])); end++ {
		explicit = explicit || f.has("connectives", tokens[end])
	}
	if end == len(tokens) || f.used[end] || !f.mayFollow(field, end, explicit) {
		return
	}
	if value, ok := f.valueOf(field, tokens[end]); ok && field.put(value) {
		f.used[end] = true
		for i := start; i < end; i++ {
			f.named[i] = true
		}
	}
}

// mayFollow reports whether a token can be the value after a name. A word needs "is", "named" or the like
// before it, and the next word must not belong to the same value.
func (f *form) mayFollow(field *field, i int, explicit bool) bool {
	switch t := f.clause.tokens[i]; {
	case t.kind != word || strings.Contains(t.plain, "-") || field.schema != nil && field.schema.Enum != nil:
		return t.kind != separator
	case !explicit && typeOf(field.schema) != "boolean" || f.has("following", t) || f.has("determiners", t):
		return false
	}
	return i+1 == len(f.clause.tokens) || f.has("following", f.clause.tokens[i+1])
}

// valueOf returns the value of a token for a field that the sentence names.
func (f *form) valueOf(field *field, t token) (any, bool) {
	if field.schema == nil || t.text == "" || referencePattern.MatchString(t.text) {
		return nil, false
	}
	if field.schema.Enum != nil {
		i := slices.IndexFunc(field.schema.Enum, func(v any) bool { text, ok := v.(string); return ok && plain(text) == t.plain })
		if i < 0 {
			return nil, false
		}
		return field.schema.Enum[i], true
	}
	switch typeOf(field.schema) {
	case "boolean":
		isTrue := slices.Contains([]string{"true", "yes", "vrai", "oui"}, t.plain)
		return isTrue, isTrue || slices.Contains([]string{"false", "no", "faux", "non"}, t.plain)
	case "number", "integer":
		var n float64
		err := json.Unmarshal([]byte(strings.TrimPrefix(t.text, "#")), &n)
		return n, t.kind == number && err == nil
	case "array":
		return []any{t.text}, field.list && t.kind != word && f.accepts(field, t)
	case "string", "":
		return t.text, f.accepts(field, t)
	}
	return nil, false
}

// role returns the list of words that says what texts a field takes, "" for any.
func (f *form) role(field *field) string {
	if field.schema.Format == "uri" {
		return "urls"
	}
	if field.schema.Format == "email" {
		return "emails"
	}
	for _, list := range []string{"urls", "emails", "paths", "patterns", "stated"} {
		if f.is(field, list) {
			return list
		}
	}
	return ""
}

// accepts reports whether a field can have a text after its name.
func (f *form) accepts(field *field, t token) bool {
	role := f.role(field)
	switch t.kind {
	case webURL:
		return role != "emails" && role != "paths"
	case email:
		return role != "urls" && role != "paths"
	}
	return role != "urls" && role != "emails" && (role != "paths" || t.kind != number)
}

// takes reports whether a field can have a value without its name.
func (f *form) takes(field *field, t token) bool {
	role, kind := f.role(field), typeOf(field.schema)
	switch t.kind {
	case filePath:
		return role == "paths"
	case webURL:
		return role == "urls"
	case email:
		return role == "emails"
	case glob:
		return role == "patterns"
	case quoted:
		return role == "" || role == "patterns"
	case number: // an optional number may mean anything
		return field.required() && (kind == "number" || kind == "integer")
	}
	return false
}

// is reports whether the name of a field has a word of a list.
func (f *form) is(field *field, list string) bool {
	return slices.ContainsFunc(field.words, func(w string) bool { return f.lists[list][w] })
}

// only returns the only required field that a function selects; without a required one, the only one.
func (f *form) only(selects func(*field) bool) *field {
	found := slices.DeleteFunc(slices.Clone(f.fields), func(field *field) bool { return field.set || field.schema == nil || field.schema.Enum != nil || !selects(field) })
	if required := slices.DeleteFunc(slices.Clone(found), func(field *field) bool { return !field.required() }); len(required) > 0 {
		found = required
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// fillRepository sets owner and repo to the halves of the only owner/repo.
func (f *form) fillRepository() {
	at := slices.IndexFunc(f.clause.tokens, token.isRepository)
	owner := f.only(func(field *field) bool { return field.group == f.root && field.name == "owner" })
	repo := f.only(func(field *field) bool { return field.group == f.root && field.name == "repo" })
	if at < 0 || f.used[at] || owner == nil || repo == nil || slices.ContainsFunc(f.clause.tokens[at+1:], token.isRepository) {
		return
	}
	parts := repositoryPattern.FindStringSubmatch(f.clause.tokens[at].text)
	f.used[at] = owner.put(parts[1]) && repo.put(parts[2])
}

// fillStates sets states and the like to the only value that a word after the verb states.
func (f *form) fillStates() {
	for _, field := range f.fields {
		if field.set || field.schema == nil || field.schema.Enum == nil || !f.is(field, "states") {
			continue
		}
		found := map[string]int{}
		for i, t := range f.clause.tokens {
			for _, v := range field.schema.Enum {
				text, _ := v.(string)
				if i > 0 && t.kind == word && !f.used[i] && !f.named[i] && (plain(text) == t.plain || slices.Contains(f.values[t.plain], text)) {
					found[text] = i
				}
			}
		}
		if len(found) > 1 { // "all open issues" are the open ones
			delete(found, "all")
		}
		for text, i := range found {
			f.used[i] = len(found) == 1 && field.put(text)
		}
	}
}

// fillUnnamed sets the only field for a kind of value to the only value of the kind.
func (f *form) fillUnnamed() {
	for _, k := range []kind{filePath, webURL, email, glob, number, quoted} {
		var at []int
		for i, t := range f.clause.tokens {
			if t.kind == k && !f.used[i] {
				at = append(at, i)
			}
		}
		if len(at) == 0 {
			continue
		}
		field := f.only(func(field *field) bool {
			_, ok := f.valueOf(field, f.clause.tokens[at[0]])
			return ok && f.takes(field, f.clause.tokens[at[0]])
		})
		if field == nil || len(at) > 1 && !field.list {
			continue
		}
		var list []any
		value, ok := any(nil), true
		for _, i := range at {
			v, valid := f.valueOf(field, f.clause.tokens[i])
			if value, ok = v, ok && valid; field.list && valid {
				list = append(list, v.([]any)...)
				value = list
			}
		}
		if ok && field.put(value) {
			for _, i := range at {
				f.used[i] = true
			}
		}
	}
}

// fillReference sets the only field that can have a text to the result of the step before, if the clause refers to it.
func (f *form) fillReference() {
	for i, t := range f.clause.tokens {
		next := token{kind: separator}
		if i+1 < len(f.clause.tokens) {
			next = f.clause.tokens[i+1]
		}
		isPossessive := f.has("possessives", t) && next.kind == word
		if f.number > 0 && !f.used[i] && (isPossessive || f.has("results", t) || f.has("contents", t) && !f.has("of", next)) {
			f.pronoun = t.text
			f.named[i], f.named[i+1] = true, f.named[i+1] || isPossessive
		}
	}
	field := f.only(func(field *field) bool { return f.is(field, "takers") && f.takes(field, token{kind: quoted}) })
	if f.pronoun == "" || field == nil {
		return
	}
	var reference any = "$" + stepID(f.number-1) + ".result"
	if field.list {
		reference = []any{reference}
	}
	f.refers = field.put(reference)
}

// explained returns the words that arguments express, except words of the tool's name.
func (f *form) explained() map[int]bool {
	out, name := map[int]bool{}, wordsOf(f.tool.ID)
	for i, t := range f.clause.tokens {
		names := f.named[i] || f.used[i] || f.used[i+1] && f.has("connectives", t)
		out[i] = names && t.kind == word && !slices.ContainsFunc(name, func(w string) bool { return strings.TrimSuffix(w, "s") == strings.TrimSuffix(t.plain, "s") })
	}
	return out
}

// unexpressed returns the values in the clause, and the names of optional arguments, that no argument expresses.
func (f *form) unexpressed() (out []string) {
	for i, t := range f.clause.tokens {
		if t.kind != word && t.kind != separator && !f.used[i] && !f.named[i] {
			out = append(out, t.text)
		}
	}
	if f.pronoun != "" && !f.refers {
		out = append(out, f.pronoun)
	}
	name := wordsOf(f.tool.ID)
	for _, field := range f.fields {
		if field.set || field.required() || slices.ContainsFunc(field.words, func(w string) bool { return slices.Contains(name, w) }) {
			continue
		}
		for i := range f.clause.tokens {
			if f.nameAt(i, field.words) > 0 && !f.used[i] && !f.named[i] {
				out = append(out, f.clause.tokens[i].text)
			}
		}
	}
	return out
}

// unsupported returns the words that a plan cannot express, and a clause that asks for no action.
func (f *form) unsupported() (out []string) {
	description := plain(f.tool.Description)
	lists := slices.ContainsFunc(f.clause.tokens, func(t token) bool { return f.has("listing", t) })
	for i, t := range f.clause.tokens {
		unknown := f.has("unsupported", t) || f.has("selective", t) && !strings.Contains(description, t.plain) || f.has("totals", t) && !lists
		if unknown && !f.used[i] && !f.named[i] {
			out = append(out, t.text)
		}
	}
	if f.tool.Class != models.ToolRead && !f.isImperative(f.clause.tokens) {
		out = append(out, f.text(f.clause, nil))
	}
	return out
}
