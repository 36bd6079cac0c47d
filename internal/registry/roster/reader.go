package roster

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"comet/internal/errs"
	"comet/internal/nearest"
	"comet/internal/validate"
	"comet/internal/words"
	"comet/models"
)

// members hands each member of an object to its field in the table and reports
// the unknown ones.
func (r *reader) members(n *node, pointer string, fields map[string]func(*node, string)) {
	for _, m := range n.members {
		at := pointer + "/" + words.Escape(m.name)
		read, ok := fields[m.name]
		if !ok {
			r.unknown(m, at, fields)
			continue
		}
		if m.value.kind != unknown {
			read(m.value, at)
		} else if r.bad == nil || !r.bad[at] {
			r.report(m.value, at, "type", "cannot be read")
		}
	}
}

func (r *reader) unknown(m member, pointer string, fields map[string]func(*node, string)) {
	if r.full() {
		r.more++
		return
	}
	known := make([]string, 0, len(fields))
	for name := range fields {
		known = append(known, name)
	}
	slices.Sort(known)
	hint := "known are " + strings.Join(known, ", ")
	if word, ok := nearest.Word(m.name, known); ok {
		hint = "did you mean " + word + "?"
	}
	r.at(m.line, errs.InvalidRequest, pointer, "unknown_field", "%s is not a known member; %s", words.Field(pointer), hint)
}

func (r *reader) document(root *node) {
	if root.kind != object {
		if root.kind != unknown {
			r.report(root, "", "type", "must be an object with the members version and agents, not %s", root.kind)
		}
		return
	}
	r.members(root, "", map[string]func(*node, string){
		"version": func(n *node, at string) {
			var version *int
			integer(r, n, at, &version)
			if version != nil && *version != Version {
				r.report(n, at, "version", "must be %d, not %d", Version, *version)
			}
			if version != nil {
				r.doc.Version = *version
			}
		},
		"agents": r.agents,
	})
	for _, name := range []string{"version", "agents"} {
		if _, given := root.member(name); !given {
			r.report(root, "/"+name, "required", "is required")
		}
	}
}

func (r *reader) agents(n *node, pointer string) {
	if n.kind != list {
		r.report(n, pointer, "type", "must be a list, not %s", n.kind)
		return
	}
	if len(n.items) > MaxAgents {
		r.report(n, pointer, "max", "must have at most %d entries, not %d", MaxAgents, len(n.items))
		return
	}
	first := map[string]*node{}
	r.doc.Agents = make([]Entry, len(n.items))
	for i, item := range n.items {
		at := pointer + "/" + strconv.Itoa(i)
		switch item.kind {
		case unknown: // reported
			continue
		case object:
		default:
			r.report(item, at, "type", "must be an object, not %s", item.kind)
			continue
		}
		entry := &r.doc.Agents[i]
		r.entry(entry, item, at)
		if entry.ID == nil {
			continue
		}
		if other, taken := first[*entry.ID]; taken {
			id, _ := item.member("id")
			r.at(id.line, errs.InvalidRequest, at+"/id", "unique", "%s repeats the agent %s of line %d", words.Field(at+"/id"), words.Clip(*entry.ID), other.line)
			continue
		}
		first[*entry.ID] = item
	}
}

// entry reads one agent and runs the field rules over what was read.
func (r *reader) entry(e *Entry, n *node, pointer string) {
	var nulls []string
	// Only the L0 agent has no sphere, parent and budget; elsewhere a null
	// would quietly mean the default.
	nullable := func(read func(*node, string)) func(*node, string) {
		return func(n *node, at string) {
			if n.kind == null {
				nulls = append(nulls, at)
				return
			}
			read(n, at)
		}
	}
	r.members(n, pointer, map[string]func(*node, string){
		"id":           func(n *node, at string) { str(r, n, at, &e.ID) },
		"name":         func(n *node, at string) { str(r, n, at, &e.Name) },
		"level":        func(n *node, at string) { integer(r, n, at, &e.Level) },
		"sphere_id":    nullable(func(n *node, at string) { integer(r, n, at, &e.SphereID) }),
		"frequency_hz": func(n *node, at string) { integer(r, n, at, &e.FrequencyHz) },
		"parent_id":    nullable(func(n *node, at string) { str(r, n, at, &e.ParentID) }),
		"token_budget": nullable(func(n *node, at string) { budget(r, n, at, &e.TokenBudget) }),
		"budget_scope": func(n *node, at string) { scope(r, n, at, &e.BudgetScope) },
		"capabilities": func(n *node, at string) { r.capabilities(n, at, &e.Capabilities) },
		"description":  func(n *node, at string) { plain(r, n, at, &e.Description) },
		"type":         func(n *node, at string) { plain(r, n, at, &e.Type) },
		"is_active":    func(n *node, at string) { r.boolean(n, at, &e.IsActive) },
	})
	if e.Level == nil || *e.Level != models.LevelSystem {
		for _, at := range nulls {
			if r.full() {
				r.more++
				continue
			}
			r.at(r.doc.Line(at), errs.InvalidRequest, at, "not_null", "%s must not be null; only the L0 agent has none", words.Field(at))
		}
	}
	for _, v := range validate.Struct(&e.AgentDraft) {
		at := pointer + v.Pointer
		if r.full() {
			r.more++
		} else if !r.bad[at] {
			r.at(r.doc.Line(at), v.Code, at, v.Rule, "%s.%s", words.Field(pointer), v.Detail)
		}
	}
}

func budget(r *reader, n *node, pointer string, into *models.Optional[int64]) {
	var tokens *int64
	if integer(r, n, pointer, &tokens); tokens != nil {
		*into = models.Some(*tokens)
	}
}

func scope(r *reader, n *node, pointer string, into *models.Optional[models.BudgetScope]) {
	var word *string
	if str(r, n, pointer, &word); word != nil {
		*into = models.Some(models.BudgetScope(*word))
	}
}

func (r *reader) capabilities(n *node, pointer string, into *[]string) {
	if n.kind != list {
		r.report(n, pointer, "type", "must be a list of strings, not %s", n.kind)
		return
	}
	names := make([]string, len(n.items))
	for i, item := range n.items {
		if at := pointer + "/" + strconv.Itoa(i); item.kind != unknown {
			plain(r, item, at, &names[i])
		}
	}
	*into = names
}

func (r *reader) boolean(n *node, pointer string, into **bool) {
	switch {
	case n.kind == null:
		r.report(n, pointer, "not_null", "must not be null, it must be true or false")
	case n.kind != boolean:
		r.report(n, pointer, "type", "must be true or false, not %s", n.kind)
	case n.text != "true" && n.text != "false":
		r.report(n, pointer, "type", "must be written true or false, not %s", n.text)
	default:
		*into = new(n.text == "true")
	}
}

func plain(r *reader, n *node, pointer string, into *string) {
	var s *string
	if str(r, n, pointer, &s); s != nil {
		*into = *s
	}
}

func str(r *reader, n *node, pointer string, into **string) {
	switch n.kind {
	case text:
		*into = &n.text
	case null:
		r.report(n, pointer, "not_null", "must not be null, it must be a string")
	case number, boolean:
		r.report(n, pointer, "type", "must be a string, not %s; put %s in quotes", n.kind, words.Clip(n.text))
	default:
		r.report(n, pointer, "type", "must be a string, not %s", n.kind)
	}
}

// integer reads a whole number in decimal.
func integer[T ~int | ~int64](r *reader, n *node, pointer string, into **T) {
	switch {
	case n.kind == null:
		r.report(n, pointer, "not_null", "must not be null, it must be an integer")
		return
	case n.kind != number:
		r.report(n, pointer, "type", "must be an integer, not %s", n.kind)
		return
	case !isDecimal(n.text):
		r.report(n, pointer, "type", "must be an integer in decimal digits, not %s", words.Clip(n.text))
		return
	}
	v, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil {
		r.report(n, pointer, "range", "must be an integer of at most 64 bits, %s is out of range", words.Clip(n.text))
		return
	}
	*into = new(T(v))
}

// isDecimal reports whether s is an integer as JSON writes one.
func isDecimal(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || (digits[0] == '0' && len(digits) > 1) {
		return false
	}
	return strings.Trim(digits, "0123456789") == ""
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) }
