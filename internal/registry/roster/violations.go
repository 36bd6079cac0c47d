package roster

import (
	"fmt"
	"slices"

	"comet/internal/errs"
	"comet/internal/words"
)

// maxBytes is what the violations may fill of an answer; the last of them, which
// counts the rest, fits beside it.
const maxBytes = errs.MaxFieldBytes - 1024

// reader collects the violations of one document.
type reader struct {
	doc        *Document
	violations errs.Violations
	bytes      int             // about what the violations fill of an answer
	more       int             // violations beyond MaxViolations or maxBytes
	bad        map[string]bool // pointers that have a violation
}

// at records a rule broken on a line.
func (r *reader) at(line int, code errs.Code, pointer, rule, format string, args ...any) {
	if r.full() {
		r.more++
		return
	}
	f := errs.Field{Pointer: pointer, Rule: rule, Line: line, Detail: fmt.Sprintf(format, args...)}
	if r.bytes += f.Size(); r.bytes > maxBytes {
		r.more++
		return
	}
	if r.bad == nil {
		r.bad = map[string]bool{}
	}
	r.bad[pointer] = true
	r.violations = append(r.violations, errs.Violation{Code: code, Field: f})
}

// full reports whether violations are only counted from here on. A caller that would
// have to work to word one asks first.
func (r *reader) full() bool { return len(r.violations) >= MaxViolations || r.bytes > maxBytes }

func (r *reader) report(n *node, pointer, rule, format string, args ...any) {
	if r.full() {
		r.more++
		return
	}
	r.at(n.line, errs.InvalidRequest, pointer, rule, "%s %s", words.Field(pointer), fmt.Sprintf(format, args...))
}

// reset forgets what was found so far.
func (r *reader) reset() { r.violations, r.bytes, r.more, r.bad = nil, 0, 0, nil }

// finish orders the violations. Where some were not listed, it is unknown which
// members are bad, so the entries are emptied.
func (r *reader) finish() errs.Violations {
	slices.SortStableFunc(r.violations, func(a, b errs.Violation) int { return a.Line - b.Line })
	if r.more > 0 {
		clear(r.doc.Agents)
		last := 1
		if n := len(r.violations); n > 0 {
			last = r.violations[n-1].Line
		}
		r.violations.Add(errs.InvalidRequest, "", "max", "there are %d more mistakes like these", r.more)
		r.violations[len(r.violations)-1].Line = last // sorting again keeps it at the end
	}
	return r.violations
}
