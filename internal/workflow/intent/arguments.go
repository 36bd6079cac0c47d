package intent

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"comet/internal/workflow/plan"
	"comet/models"
)

// newForm returns the form of a tool, filled with the values of a clause and of the context.
func (l lexicon) newForm(t *Tool, c *clause, result string, context map[string]json.RawMessage) *form {
	f := &form{lexicon: l, clause: c, tool: t, id: wordsOf(t.ID), result: result, root: &group{needed: true, object: map[string]any{}}, used: map[int]bool{}, named: map[int]bool{}}
	var s *jsonschema.Schema
	if json.Unmarshal(t.InputSchema, &s) != nil || s == nil {
		return f
	}
	f.resolved = plan.ResolveSchema(s)
	f.addFields(s, f.root, context)
	if len(f.fields) == 1 && len(s.Required) == 0 { // a tool is useless without its only text
		only := f.fields[0]
		only.needed = only.list || typeOf(only.schema) == "string" && only.schema.Default == nil && only.schema.Enum == nil
	}
	f.setShortNames()
	f.fillRepository()
	f.fillNamed()
	f.fillStates()
	f.fillUnnamed()
	for _, field := range f.fields {
		if field.group == f.root && !field.set {
			field.putFrom(context)
		}
	}
	f.fillUnnamed()
	f.fillReference()
	return f
}

// nameAt returns how many tokens from i on name a field, 0 for none.
func (f *form) nameAt(field *field, i int) int {
	t := f.tokens[i]
	isShort := field.short != "" && t.kind == word && (singular(t.plain) == singular(field.short) || f.lexicon[field.short+":"][t.plain])
	if isShort || t.kind == identifier && slices.Equal(wordsOf(t.text), field.words) {
		return 1
	}
	for k, w := range field.words {
		if i+k >= len(f.tokens) || f.tokens[i+k].kind != word || singular(f.tokens[i+k].plain) != singular(w) {
			return 0
		}
	}
	return len(field.words)
}

func singular(word string) string { return strings.TrimSuffix(word, "s") }

// fillNamed sets fields to the values that follow their names.
func (f *form) fillNamed() {
	for _, field := range f.fields {
		for start := range f.tokens {
			at := start + f.nameAt(field, start)
			if at == start || field.set || f.named[start] {
				continue
			}
			explicit := f.has("connectives", f.tokens[start])                           // "named"
			isLink := func(t token) bool { return field.isEnum() && f.has("links", t) } // "sorted by X"
			for ; at < len(f.tokens) && (f.has("connectives", f.tokens[at]) || isLink(f.tokens[at])); at++ {
				explicit = explicit || f.has("connectives", f.tokens[at])
			}
			if at < len(f.tokens) && !f.used[at] && f.mayFollow(field, at, explicit) && f.putToken(field, at, true) {
				for i := start; i < at; i++ {
					f.named[i] = true
				}
			}
		}
	}
}

// mayFollow reports whether a token can be the value after a name. A word needs "is", "named" or the like before it, and
// the next word must not belong to the same value. In a text, all but quoted texts need it, too: "the content of a.txt".
func (f *form) mayFollow(field *field, i int, explicit bool) bool {
	t, kind := f.tokens[i], typeOf(field.schema)
	isText := kind != "number" && kind != "integer" && f.role(field) == ""
	switch {
	case t.kind == separator:
		return false
	case t.kind != word && t.kind != quoted:
		return explicit || !isText
	case t.kind == quoted || field.isEnum() || !isText && strings.Contains(t.plain, "-") && !f.isVerb(t):
		return true
	case !explicit && kind != "boolean" || f.has("following", t) || f.has("determiners", t):
		return false
	}
	return f.isLast(i)
}

// isLast reports whether a token is the last one of a value.
func (f *form) isLast(i int) bool { return i+1 == len(f.tokens) || f.has("following", f.tokens[i+1]) }

// putToken sets a field to the value of a token if that is valid. named is set if the token follows the name of the field.
func (f *form) putToken(field *field, i int, named bool) bool {
	value := f.valueOf(field, f.tokens[i], named)
	f.used[i] = value != nil && field.put(value)
	return f.used[i]
}

// valueOf returns the value of a token for a field, nil for none.
func (f *form) valueOf(field *field, t token, named bool) any {
	if field.schema == nil || t.text == "" || referencePattern.MatchString(t.text) {
		return nil
	}
	if field.isEnum() {
		i := slices.IndexFunc(field.schema.Enum, func(v any) bool { text, ok := v.(string); return ok && plain(text) == t.plain })
		if i < 0 || !named {
			return nil
		}
		return field.schema.Enum[i]
	}
	switch kind := typeOf(field.schema); {
	case kind == "boolean" && named && (f.lexicon["true"][t.plain] || f.lexicon["false"][t.plain]):
		return f.lexicon["true"][t.plain]
	case (kind == "number" || kind == "integer") && t.kind == number && (named || field.required()): // an optional one may mean anything
		var n float64
		if json.Unmarshal([]byte(strings.TrimPrefix(t.text, "#")), &n) == nil {
			return n
		}
	case (kind == "string" || kind == "" || field.list && t.kind != word) && f.accepts(field, t, named):
		return t.text
	}
	return nil
}

// role returns the list of words that says what texts a field takes, "" for any.
func (f *form) role(field *field) string {
	if field.schema != nil && field.schema.Format == "uri" {
		return "urls"
	}
	for _, list := range []string{"urls", "emails", "paths", "stated"} {
		if f.is(field, list) {
			return list
		}
	}
	return ""
}

// accepts reports whether a field can have a text.
func (f *form) accepts(field *field, t token, named bool) bool {
	role := f.role(field)
	own := map[kind]string{filePath: "paths", repository: "paths", webURL: "urls", email: "emails"}[t.kind]
	switch {
	case !named:
		return own == role && (own != "" || t.kind == quoted)
	case role == "paths":
		return own == role || own == "" && t.kind != number
	}
	return own == role || role != "urls" && role != "emails"
}

// is reports whether the name of a field has a word of a list.
func (f *form) is(field *field, list string) bool {
	return slices.ContainsFunc(field.words, func(w string) bool { return f.lexicon[list][w] })
}

// only returns the only required field that a function selects; without a required one, the only one.
func (f *form) only(selects func(*field) bool) *field {
	found := slices.DeleteFunc(slices.Clone(f.fields), func(field *field) bool { return field.set || !selects(field) })
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
	isRepository := func(t token) bool { return t.kind == repository }
	at := slices.IndexFunc(f.tokens, isRepository)
	owner := f.only(func(field *field) bool { return field.group == f.root && field.name == "owner" })
	repo := f.only(func(field *field) bool { return field.group == f.root && field.name == "repo" })
	if at >= 0 && !f.used[at] && owner != nil && repo != nil && !slices.ContainsFunc(f.tokens[at+1:], isRepository) {
		parts := repositoryPattern.FindStringSubmatch(f.tokens[at].text)
		f.used[at] = owner.put(parts[1]) && repo.put(parts[2])
	}
}

// fillStates sets states and the like to the only value that a word after the verb states.
func (f *form) fillStates() {
	for _, field := range f.fields {
		if field.set || !field.isEnum() || !f.is(field, "states") {
			continue
		}
		found := map[string]int{}
		for i, t := range f.tokens {
			for _, v := range field.schema.Enum {
				text, _ := v.(string)
				if i > 0 && t.kind == word && !f.used[i] && !f.named[i] && (plain(text) == t.plain || f.lexicon[text+"|"][t.plain]) {
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

// fillUnnamed sets the only field for a kind of value to the only value of the kind, or a list to the values of an enumeration.
func (f *form) fillUnnamed() {
	for _, k := range []kind{filePath, repository, webURL, email, number, quoted} {
		var at []int
		var values []any
		adjacent := true
		for i, t := range f.tokens {
			if t.kind != k || f.used[i] || k == number && t.text[0] != '#' && !f.isLast(i) { // "5 things" are a number of things
				continue
			}
			if len(at) > 0 {
				between := f.tokens[at[len(at)-1]+1 : i]
				adjacent = adjacent && !slices.ContainsFunc(between, func(t token) bool { return t.text != "," && !f.has("conjunctions", t) })
			}
			at, values = append(at, i), append(values, t.text)
		}
		if len(at) == 0 {
			continue
		}
		switch field := f.only(func(field *field) bool { return f.valueOf(field, f.tokens[at[0]], false) != nil }); {
		case field == nil:
		case len(at) == 1:
			f.putToken(field, at[0], false)
		case field.list && adjacent && !slices.ContainsFunc(at, func(i int) bool { return f.valueOf(field, f.tokens[i], false) == nil }) && field.put(values):
			for _, i := range at {
				f.used[i] = true
			}
		}
	}
}

// fillReference sets the only field that can have a text to the result of the step before, if the clause refers to it.
func (f *form) fillReference() {
	for i, t := range f.tokens {
		next := token{kind: separator}
		if i+1 < len(f.tokens) {
			next = f.tokens[i+1]
		}
		isPossessive := f.has("possessives", t) && next.kind == word
		isResult := f.has("results", t) || f.has("contents", t) && !f.has("of", next)
		if !f.used[i] && (f.has("pronouns", t) || isPossessive || f.result != "" && isResult) {
			f.pronoun = t.text
			f.named[i], f.named[i+1] = true, f.named[i+1] || isPossessive
		}
	}
	field := f.only(func(field *field) bool {
		return f.is(field, "takers") && f.valueOf(field, token{kind: quoted, text: "text"}, false) != nil
	})
	f.refers = f.pronoun != "" && f.result != "" && field != nil && field.put(f.result)
}

// isOfTool reports whether a word is in the id of the tool.
func (f *form) isOfTool(word string) bool {
	return slices.ContainsFunc(f.id, func(w string) bool { return singular(w) == singular(word) })
}

// explained returns the words that arguments express, except words of the tool's id.
func (f *form) explained() map[int]bool {
	out := map[int]bool{}
	for i, t := range f.tokens {
		out[i] = t.kind == word && !f.isOfTool(t.plain) && (f.named[i] || f.used[i] || f.used[i+1] && f.has("connectives", t))
	}
	return out
}

// unexpressed returns the values in the clause, and the names of optional arguments, that no argument expresses.
func (f *form) unexpressed() (out []string) {
	for i, t := range f.tokens {
		isName := slices.ContainsFunc(f.fields, func(field *field) bool {
			return f.nameAt(field, i) >= max(1, len(field.words)) && !field.set && !field.required() && !slices.ContainsFunc(field.words, f.isOfTool)
		})
		if !f.used[i] && !f.named[i] && t.kind != separator && (t.kind != word || isName) {
			out = append(out, t.text)
		}
	}
	if f.pronoun != "" && !f.refers {
		out = append(out, f.pronoun)
	}
	return out
}

// faults returns the number of missing arguments and of parts of the clause that no argument expresses.
func (f *form) faults() int { return len(f.missing()) + len(f.unexpressed()) }

// unsupported returns the words that a plan cannot express, and a clause that does not state the change that its tool makes.
func (f *form) unsupported() (out []string) {
	lists := slices.ContainsFunc(f.tokens, func(t token) bool { return f.has("listing", t) })
	for i, t := range f.tokens {
		next := i + 1 // "and" joins arguments only
		for next < len(f.tokens) && (f.has("determiners", f.tokens[next]) || f.has("following", f.tokens[next])) {
			next++
		}
		isOther := f.has("unsupported", t) || f.has("totals", t) && !lists || f.has("and", t) && !f.used[next] && !f.named[next]
		if isOther && !f.used[i] && !f.named[i] {
			out = append(out, t.text)
		}
	}
	optional := slices.DeleteFunc(slices.Clone(f.fields), func(field *field) bool { return field.needed })
	isUpdate := slices.ContainsFunc(f.id, func(w string) bool { return f.lexicon["updates"][w] })
	isChanged := len(optional) == 0 || slices.ContainsFunc(optional, func(field *field) bool { return field.set })
	if f.tool.Class != models.ToolRead && (!f.isRequest(f.tokens) || isUpdate && !isChanged) {
		out = append(out, f.text(f.clause, nil))
	}
	return out
}
