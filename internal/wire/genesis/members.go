package genesis

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
)

// member is a member of an object in three forms.
type member struct {
	name string
	// sent is the value as it was sent.
	sent jsontext.Value
	// printed is the value as JavaScript prints it.
	printed jsontext.Value
	// repeats reports whether an object in the value repeats a name.
	repeats bool
}

func (m member) asSent() jsontext.Value { return m.sent }

func (m member) javaScript() jsontext.Value { return m.printed }

// received returns the value as it was sent, or as JavaScript prints it if an object in it repeats a
// name, so that every reader of the value finds the same member.
func (m member) received() jsontext.Value {
	if m.repeats {
		return m.printed
	}
	return m.sent
}

// find returns a member, nil if it is missing.
func find(members []member, name string) *member {
	for i := range members {
		if members[i].name == name {
			return &members[i]
		}
	}
	return nil
}

// readMessage returns the members of a message. If the message is malformed, it returns a problem
// and the members before it.
func readMessage(data []byte) ([]member, *Problem) {
	switch {
	case len(data) > MaxSize:
		return nil, new(problemAt("", "is longer than %d bytes", MaxSize))
	case len(bytes.TrimLeft(data, " \t\r\n")) == 0:
		return nil, new(problemAt("", "is empty; send a JSON object"))
	case !utf8.Valid(data):
		return nil, new(problemAt("", "is not valid UTF-8"))
	}
	p := newPrinter(data)
	defer p.release()
	members, problem := readMembers(p, data, "")
	if problem != nil {
		return members, problem
	}
	if _, err := p.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return members, new(problemAt("", "is followed by more data; send one message at a time"))
	}
	return members, nil
}

// readMembers reads the object data at path with p.
func readMembers(p *printer, data []byte, path string) ([]member, *Problem) {
	if kind := p.dec.PeekKind(); kind != '{' {
		value, err := p.dec.ReadValue()
		if err != nil {
			return nil, syntaxProblem(path, err)
		}
		return nil, new(problemAt(path, "must be an object, not %s", describe(value)))
	}
	_, _ = p.dec.ReadToken() // the brace that was peeked
	members := make([]member, 0, 6)
	for p.dec.PeekKind() != '}' {
		m, problem := readMember(p, data, path)
		if problem != nil {
			return members, problem
		}
		if find(members, m.name) != nil {
			return members, new(problemAt(path+"/"+input.Escape(m.name), "appears twice; send it once"))
		}
		if len(members) == maxMembers {
			return members, new(problemAt(path, "has more than %d members", maxMembers))
		}
		members = append(members, m)
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return members, syntaxProblem(path, err)
	}
	return members, nil
}

// readMember reads a name and its value. JSON pointers of p's decoder are relative to path.
func readMember(p *printer, data []byte, path string) (member, *Problem) {
	quoted, err := p.dec.ReadValue()
	if err != nil {
		return member{}, syntaxProblem(path, err)
	}
	unquoted, err := unquote(quoted)
	if err != nil {
		return member{}, new(problemAt(path, "has a member whose name contains half of a surrogate pair"))
	}
	name, colon, begin := string(unquoted), int(p.dec.InputOffset()), len(p.out)
	p.repeats = false
	if err := p.value(); errors.Is(err, errTooDeep) {
		return member{}, new(problemAt(path+"/"+input.Escape(name), "is nested deeper than %d levels", maxDepth))
	} else if err != nil {
		return member{}, syntaxProblem(path, err)
	}
	if p.overflow != "" {
		return member{}, new(problemAt(path+string(p.overflow), "is beyond the range of a double, so that JavaScript would sign null; send it as a string"))
	}
	end := int(p.dec.InputOffset())
	return member{
		name: name, repeats: p.repeats,
		sent:    bytes.TrimLeft(data[colon:end:end], " \t\r\n:"),
		printed: p.out[begin:len(p.out):len(p.out)],
	}, nil
}

// syntaxProblem converts an error of the decoder.
func syntaxProblem(path string, err error) *Problem {
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok || errors.Is(err, io.ErrUnexpectedEOF) {
		return new(problemAt("", "ends before it is complete"))
	}
	return new(problemAt(path+string(syntactic.JSONPointer), "is not valid JSON at byte %d: %s", syntactic.ByteOffset, syntactic.Err))
}
