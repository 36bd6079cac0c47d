package genesis

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

var errTooDeep = errors.New("nested too deeply")

// printer reads JSON and appends what JSON.stringify(JSON.parse(text)) prints in JavaScript:
// names that are array indexes first and in ascending order, of repeated names the position of the
// first and the value of the last, the shortest text of each double, no escapes but the necessary
// ones, and halves of surrogate pairs escaped.
type printer struct {
	dec *jsontext.Decoder
	out []byte
	// repeats reports whether an object repeats a name.
	repeats bool
	// overflow is the first number beyond the range of a double, which JavaScript prints as null.
	overflow jsontext.Pointer
}

func newPrinter(data []byte) *printer {
	// Names are compared by the printer, and the caller checks the UTF-8: the decoder's own check
	// would reject halves of surrogate pairs, which JavaScript accepts.
	dec := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return &printer{dec: dec, out: make([]byte, 0, len(data))}
}

// value reads and prints the next value.
func (p *printer) value() error {
	kind := p.dec.PeekKind()
	switch kind {
	case '{':
		return p.object()
	case '[':
		return p.array()
	}
	value, err := p.dec.ReadValue()
	switch {
	case err != nil:
		return err
	case kind == '"':
		p.out = appendString(p.out, value)
	case kind == '0':
		finite := false
		if p.out, finite = appendNumber(p.out, value); !finite && p.overflow == "" {
			p.overflow = p.dec.StackPointer()
		}
	default:
		p.out = append(p.out, value...)
	}
	return nil
}

// open reads and prints a brace or bracket.
func (p *printer) open(brace byte) error {
	if p.dec.StackDepth() > maxDepth {
		return errTooDeep
	}
	p.out = append(p.out, brace)
	_, err := p.dec.ReadToken()
	return err
}

// close reads the closing brace or bracket and prints it in place of the last comma.
func (p *printer) close(brace byte) error {
	if last := len(p.out) - 1; p.out[last] == ',' {
		p.out = p.out[:last]
	}
	p.out = append(p.out, brace)
	_, err := p.dec.ReadToken()
	return err
}

func (p *printer) array() error {
	if err := p.open('['); err != nil {
		return err
	}
	for p.dec.PeekKind() != ']' {
		if err := p.value(); err != nil {
			return err
		}
		p.out = append(p.out, ',')
	}
	return p.close(']')
}

// printed is a member of an object: its offsets in the printer's output, and its array index.
type printed struct {
	begin, colon, end int
	index             uint64
}

func (p *printer) object() error {
	if err := p.open('{'); err != nil {
		return err
	}
	var few [fewMembers]printed
	members := few[:0]
	for p.dec.PeekKind() != '}' {
		name, err := p.dec.ReadValue()
		if err != nil {
			return err
		}
		m := printed{begin: len(p.out)}
		p.out = appendString(p.out, name)
		m.colon, m.index = len(p.out), arrayIndex(p.out[m.begin:])
		p.out = append(p.out, ':')
		if err := p.value(); err != nil {
			return err
		}
		p.out = append(p.out, ',')
		m.end = len(p.out)
		members = append(members, m)
	}
	if len(members) > 0 {
		p.arrange(members)
	}
	return p.close('}')
}

// arrange brings the printed members of an object into the order of JavaScript.
func (p *printer) arrange(members []printed) {
	begin, count := members[0].begin, len(members)
	members = p.unique(members)
	byIndex := func(a, b printed) int { return cmp.Compare(a.index, b.index) }
	if len(members) == count && slices.IsSortedFunc(members, byIndex) {
		return
	}
	slices.SortStableFunc(members, byIndex)
	all := bytes.Clone(p.out[begin:])
	p.out = p.out[:begin]
	for _, m := range members {
		p.out = append(p.out, all[m.begin-begin:m.end-begin]...)
	}
}

// fewMembers is up to how many members it is faster to compare all pairs of names than to hash them.
const fewMembers = 16

// unique removes repeated names from members.
func (p *printer) unique(members []printed) []printed {
	// Different names are printed differently.
	name := func(m printed) []byte { return p.out[m.begin:m.colon] }
	var positions map[string]int
	if len(members) > fewMembers {
		positions = make(map[string]int, len(members))
	}
	unique := members[:0]
	for _, m := range members {
		at, repeated := positions[string(name(m))]
		if positions == nil {
			at = slices.IndexFunc(unique, func(u printed) bool { return bytes.Equal(name(u), name(m)) })
			repeated = at >= 0
		}
		switch {
		case repeated:
			unique[at], p.repeats = m, true
			continue
		case positions != nil:
			positions[string(name(m))] = len(unique)
		}
		unique = append(unique, m)
	}
	return unique
}

// arrayIndex returns the number of a name that JavaScript treats as an index, which is an integer
// below 2^32 - 1 without leading zeros, and 2^32 - 1 for other names.
func arrayIndex(quoted []byte) (index uint64) {
	digits := quoted[1 : len(quoted)-1]
	if len(digits) == 0 || len(digits) > 10 || digits[0] == '0' && len(digits) > 1 {
		return math.MaxUint32
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return math.MaxUint32
		}
		index = index*10 + uint64(c-'0')
	}
	return min(index, math.MaxUint32)
}

// appendNumber appends a number as the shortest text of its double. ok is false for a number beyond
// the range of a double, which becomes Infinity in JavaScript and is printed as null.
func appendNumber(dst, text []byte) (out []byte, ok bool) {
	const exactDigits = 15
	if len(text) <= exactDigits && string(text) != "-0" && !bytes.ContainsAny(text, ".eE") {
		return append(dst, text...), true
	}
	double, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil:
		return append(dst, "null"...), false
	case double == 0:
		return append(dst, '0'), true // also for -0
	}
	return jsontext.AppendFloat(dst, double, 64), true
}

// appendString appends a valid quoted string with the escapes of JavaScript.
func appendString(dst, quoted []byte) []byte {
	for {
		at := bytes.IndexByte(quoted, '\\')
		if at < 0 {
			return append(dst, quoted...)
		}
		dst = append(dst, quoted[:at]...)
		escape := quoted[at:]
		switch escape[1] {
		case 'u':
			unit, size := codeUnit(escape), 6
			if utf16.IsSurrogate(unit) && len(escape) > 12 && escape[6] == '\\' && escape[7] == 'u' {
				if r := utf16.DecodeRune(unit, codeUnit(escape[6:])); r != utf8.RuneError {
					unit, size = r, 12
				}
			}
			dst, quoted = appendCharacter(dst, unit), escape[size:]
		case '/':
			dst, quoted = append(dst, '/'), escape[2:]
		default:
			dst, quoted = append(dst, escape[:2]...), escape[2:]
		}
	}
}

// codeUnit returns the UTF-16 code unit of an escape with four hex digits.
func codeUnit(escape []byte) rune {
	unit, _ := strconv.ParseUint(string(escape[2:6]), 16, 16) // the JSON is valid
	return rune(unit)
}

// appendCharacter appends a character, or half of a surrogate pair, of a string.
func appendCharacter(dst []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r >= ' ' && !utf16.IsSurrogate(r):
		return utf8.AppendRune(dst, r)
	}
	if short := bytes.IndexByte([]byte("\b\t\n\f\r"), byte(r)); short >= 0 && r < ' ' {
		return append(dst, '\\', "btnfr"[short])
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[r>>12], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
