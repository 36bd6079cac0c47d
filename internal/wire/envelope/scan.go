package envelope

import (
	"bytes"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// The functions below scan JSON that is known to be valid. They avoid a decoder for each part of a
// message.

// members yields the unquoted names and the values of an object.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := skipSpace(object, 1); object[i] != '}'; {
			end := stringEnd(object, i)
			name := unquote(object[i:end])
			i = skipSpace(object, end) + 1 // the colon
			i = skipSpace(object, i)
			end = valueEnd(object, i)
			if !yield(name, object[i:end]) {
				return
			}
			if i = skipSpace(object, end); object[i] == ',' {
				i = skipSpace(object, i+1)
			}
		}
	}
}

func valueEnd(text []byte, i int) int {
	switch text[i] {
	case '"':
		return stringEnd(text, i)
	case '{', '[':
		return nestedEnd(text, i)
	}
	for i < len(text) && bytes.IndexByte([]byte(",]} \t\r\n"), text[i]) < 0 {
		i++
	}
	return i
}

// nestedEnd returns the end of the object or array that begins at i.
func nestedEnd(text []byte, i int) int {
	depth := 0
	for {
		switch text[i] {
		case '"':
			i = stringEnd(text, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 {
			return i
		}
	}
}

// stringEnd returns the end of the string that begins at i, the end of text if it is not
// terminated.
func stringEnd(text []byte, i int) int {
	for i++; ; {
		quote := bytes.IndexByte(text[i:], '"')
		if quote < 0 {
			return len(text)
		}
		i += quote + 1
		slashes := 0
		for text[i-2-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

func skipSpace(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r' {
		i++
	}
	return i
}

// unquote returns the value of a quoted string. It copies only if the string has escapes.
func unquote(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	text, _ := jsontext.AppendUnquote(make([]byte, 0, len(quoted)), quoted) // quoted is valid
	return text
}

// tooDeep reports whether text, which may be malformed, is nested deeper than MaxDepth.
func tooDeep(text []byte) bool {
	if bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) <= maxDepth {
		return false
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = stringEnd(text, i) - 1
		case '{', '[':
			if depth++; depth > maxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}
