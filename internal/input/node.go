package input

import (
	"github.com/go-json-experiment/json/jsontext"
)

// Kind is the type of a value.
type Kind uint8

// The kinds. YAML has no others: a date is a string.
const (
	Invalid Kind = iota // has a violation and no value
	Object
	Array
	String
	Number
	Boolean
	Null
)

// Node is a value of a document.
type Node struct {
	Kind Kind
	// Line is the 1-based line on which the value begins.
	Line int
	// Text is the text of a string, number or boolean.
	Text string
	// Members are those of an object, or the items of an array, which have no names.
	Members []Member
}

// Member is a member of an object.
type Member struct {
	Name string
	// Line is the 1-based line of the name.
	Line  int
	Value Node
}

// String describes the value in a sentence: “a number”, “true”.
func (n *Node) String() string {
	switch n.Kind {
	case Object:
		return "an object"
	case Array:
		return "an array"
	case String:
		return "a string"
	case Number:
		return "a number"
	case Boolean:
		return n.Text
	case Null:
		return "null"
	}
	return "an invalid value"
}

// Member returns the member of an object with the name, nil if there is none.
func (n *Node) Member(name string) *Member {
	if n == nil || n.Kind != Object {
		return nil
	}
	for i := range n.Members {
		if n.Members[i].Name == name {
			return &n.Members[i]
		}
	}
	return nil
}

// JSON returns the value as JSON. Invalid members are left out.
func (n *Node) JSON() []byte { return n.appendJSON(nil) }

func (n *Node) appendJSON(b []byte) []byte {
	switch n.Kind {
	case Object:
		b = append(b, '{')
		comma := false
		for i := range n.Members {
			m := &n.Members[i]
			if m.Value.Kind == Invalid {
				continue
			}
			if comma {
				b = append(b, ',')
			}
			comma = true
			b = append(appendString(b, m.Name), ':')
			b = m.Value.appendJSON(b)
		}
		return append(b, '}')
	case Array:
		b = append(b, '[')
		for i := range n.Members {
			if i > 0 {
				b = append(b, ',')
			}
			b = n.Members[i].Value.appendJSON(b)
		}
		return append(b, ']')
	case String:
		return appendString(b, n.Text)
	case Number, Boolean:
		return append(b, n.Text...)
	}
	return append(b, "null"...)
}

func appendString(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text) // the text is valid UTF-8
	return b
}
