package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
)

func (d *Document) parseJSON(data []byte) {
	if len(bytes.TrimLeft(data, " \t\r\n")) == 0 {
		d.fail(1, errs.MalformedJSON, "", "required", "the document is empty; it must be one JSON value")
		return
	}
	p := &jsonParser{
		Document: d, data: data, line: 1,
		dec: jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true)),
	}
	var root Node
	if err := p.value(&root); err != nil {
		if !errors.Is(err, errTooDeep) {
			p.failSyntax(err)
		}
		return
	}
	if rest := bytes.TrimLeft(data[p.dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		at := len(data) - len(rest)
		d.fail(lineAt(data, at), errs.MalformedJSON, "", "trailing_data", "there is more data after the JSON value, %s", position(data, at))
		return
	}
	d.Root = &root
}

var errTooDeep = errors.New("nested too deep")

type jsonParser struct {
	*Document
	data   []byte
	dec    *jsontext.Decoder
	offset int // up to which lines were counted
	line   int // at offset
}

// next reads a token and counts its lines.
func (p *jsonParser) next() (jsontext.Token, error) {
	token, err := p.dec.ReadToken()
	end := int(p.dec.InputOffset())
	p.line += bytes.Count(p.data[p.offset:end], []byte("\n"))
	p.offset = end
	return token, err
}

// value reads the next value.
func (p *jsonParser) value(n *Node) error {
	token, err := p.next()
	if err != nil {
		return err
	}
	n.Line = p.line
	switch token.Kind() {
	case '{':
		n.Kind = Object
		err = p.nested(func() error { return p.members(n) })
	case '[':
		n.Kind = Array
		err = p.nested(func() error { return p.items(n) })
	case '"':
		n.Kind, n.Text = String, token.String()
		if strings.ContainsRune(n.Text, 0) {
			p.report(n.Line, errs.InvalidRequest, "printable", "must not contain the NUL character (U+0000)")
			n.Kind = Invalid
		}
	case '0':
		n.Kind, n.Text = Number, token.String()
	case 'n':
		n.Kind = Null
	default:
		n.Kind, n.Text = Boolean, token.String()
	}
	return err
}

func (p *jsonParser) nested(read func() error) error {
	if p.dec.StackDepth() > MaxDepth {
		pointer := Pointer(string(p.dec.StackPointer()))
		p.fail(p.line, errs.MalformedJSON, pointer, "depth", "%s is nested deeper than %d levels", Field(pointer), MaxDepth)
		return errTooDeep
	}
	if err := read(); err != nil {
		return err
	}
	_, err := p.next() // the closing bracket
	return err
}

func (p *jsonParser) items(n *Node) (err error) {
	for p.dec.PeekKind() != ']' && err == nil {
		n.Members = append(n.Members, Member{})
		m := &n.Members[len(n.Members)-1]
		p.below(step{index: len(n.Members) - 1}, func() { err = p.value(&m.Value) })
		m.Line = m.Value.Line
	}
	return err
}

func (p *jsonParser) members(n *Node) (err error) {
	lines := map[string]int{}
	for p.dec.PeekKind() != '}' && err == nil {
		var name jsontext.Token
		if name, err = p.next(); err != nil {
			return err
		}
		m := Member{Name: name.String(), Line: p.line}
		p.below(step{m.Name, -1}, func() {
			if len(m.Name) > MaxName {
				p.report(m.Line, errs.InvalidRequest, "max", "has a name longer than %d bytes", MaxName)
				err = p.dec.SkipValue()
				return
			}
			if err = p.value(&m.Value); err != nil {
				return
			}
			switch first, repeated := lines[m.Name]; {
			case repeated && isSingleLine(p.data):
				p.report(m.Line, errs.MalformedJSON, "duplicate_key", "is given twice")
			case repeated:
				p.report(m.Line, errs.MalformedJSON, "duplicate_key", "is given twice, first on line %d", first)
			case strings.ContainsRune(m.Name, 0):
				p.report(m.Line, errs.InvalidRequest, "printable", "must not have the NUL character (U+0000) in its name")
			default:
				lines[m.Name] = m.Line
				n.Members = append(n.Members, m)
			}
		})
	}
	return err
}

// failSyntax records an error of the decoder.
func (p *jsonParser) failSyntax(err error) {
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		p.fail(1, errs.MalformedJSON, "", "syntax", "the document ends before it is complete")
		return
	}
	offset := min(int(syntactic.ByteOffset), len(bytes.TrimRight(p.data, " \t\r\n")))
	at, rule, detail := position(p.data, offset), "syntax", ""
	switch {
	case notUTF8(p.data[offset:]):
		rule, detail = "utf8", "the document is not valid UTF-8 "+at
	case errors.Is(err, io.ErrUnexpectedEOF):
		detail = "the document ends before it is complete, " + at
	case bytes.HasPrefix(p.data, []byte("\uFEFF")) && offset == 0:
		detail = "the document begins with a byte order mark, which JSON does not allow"
	default:
		detail = "the document is not valid JSON " + at + ": " + syntactic.Err.Error()
	}
	p.fail(lineAt(p.data, offset), errs.MalformedJSON, string(syntactic.JSONPointer), rule, "%s", detail)
}

// position describes an offset. Columns count bytes from 1.
func position(data []byte, offset int) string {
	column := offset - bytes.LastIndexByte(data[:offset], '\n')
	if isSingleLine(data) {
		return fmt.Sprintf("at column %d", column)
	}
	return fmt.Sprintf("at line %d, column %d", lineAt(data, offset), column)
}

// notUTF8 reports whether rest begins with a byte that is not UTF-8 or with the escape of half a
// surrogate pair.
func notUTF8(rest []byte) bool {
	if r, size := utf8.DecodeRune(rest); r == utf8.RuneError && size == 1 {
		return true
	}
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
		return false
	}
	n, err := strconv.ParseUint(string(rest[2:6]), 16, 16)
	return err == nil && n >= 0xD800 && n <= 0xDFFF
}
