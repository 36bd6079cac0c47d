package genesis

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

var errTooDeep = errors.New("nested too deeply")

// printer reads JSON and prints it as JSON.stringify(JSON.parse(text)) does in JavaScript: names that are
// array indexes come first, in ascending order; of repeated names, the first gives the position and the
// last the value; each number is the shortest text of its double; only what must be escaped and halves
// of surrogate pairs are escaped.
type printer struct {
	dec *jsontext.Decoder
	out []byte
	// repeats reports whether an object repeats a name.
	repeats bool
	// overflow is the first number beyond the range of a double, which JavaScript prints as null.
	overflow jsontext.Pointer
}

// decoders are reused: each value of a message that has rules of its own needs one, and a new one allocates several times.
var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(&bytes.Buffer{}) }} //nolint:gochecknoglobals // see above

// newPrinter returns a printer of data. Call release when it has read what it is for.
func newPrinter(data []byte) *printer {
	dec, _ := decoders.Get().(*jsontext.Decoder)
	// Names are compared by the printer, and the caller checks the UTF-8: the decoder's own check
	// would reject halves of surrogate pairs, which JavaScript accepts.
	dec.Reset(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return &printer{dec: dec, out: make([]byte, 0, len(data))}
}

// release ends the use of the decoder. The output stays valid.
func (p *printer) release() { decoders.Put(p.dec) }

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

// open reads and prints an opening brace or bracket.
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

// printed is a member of an object, with its offsets in the printer's output and its array index.
type printed struct {
	begin, colon, end int
	index             uint64
}

func (p *printer) object() error {
	if err := p.open('{'); err != nil {
		return err
	}
	var few [16]printed
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
	if len(members) > 1 {
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

// unique removes repeated names from members.
func (p *printer) unique(members []printed) []printed {
	positions := make(map[string]int, len(members))
	unique := members[:0]
	for _, m := range members {
		name := p.out[m.begin:m.colon] // different names are printed differently
		if at, repeated := positions[string(name)]; repeated {
			unique[at], p.repeats = m, true
			continue
		}
		positions[string(name)] = len(unique)
		unique = append(unique, m)
	}
	return unique
}

// arrayIndex returns the value of a name that JavaScript treats as an array index: an integer below
// 2^32 - 1 without leading zeros. For other names it returns 2^32 - 1.
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
	if bytes.IndexByte(quoted, '\\') < 0 {
		return append(dst, quoted...)
	}
	if out, err := jsontext.AppendFormat(dst, quoted); err == nil {
		return out
	}
	// The string contains a half of a surrogate pair, which AppendFormat rejects.
	for len(quoted) > 0 {
		n := escapeLength(quoted)
		switch escape := quoted[:n]; {
		case n == 1:
			dst = append(dst, escape...)
		case n == 6 && isSurrogate(escape, '8', 'f'):
			dst = append(dst, bytes.ToLower(escape)...)
		default:
			text, _ := jsontext.AppendFormat(nil, slices.Concat([]byte{'"'}, escape, []byte{'"'})) // it is valid
			dst = append(dst, text[1:len(text)-1]...)
		}
		quoted = quoted[n:]
	}
	return dst
}

// escapeLength returns the length of the escape or surrogate pair at the beginning of text, 1 for another byte.
func escapeLength(text []byte) int {
	switch {
	case text[0] != '\\':
		return 1
	case text[1] != 'u':
		return len(`\n`)
	case isSurrogate(text, '8', 'b') && isSurrogate(text[6:], 'c', 'f'):
		return len(`\ud83d\ude00`)
	}
	return len(`\u0000`)
}

// isSurrogate reports whether text begins with the escape of a half of a surrogate pair whose second digit is from first
// to last.
func isSurrogate(text []byte, first, last byte) bool {
	const lower = 'a' - 'A' // digits also have this bit
	return len(text) > 3 && text[0] == '\\' && text[1] == 'u' && text[2]|lower == 'd' && text[3]|lower >= first && text[3]|lower <= last
}

// Fits reports whether a message that Sign signs may contain a value, of at most 7 MiB as JavaScript prints it.
func Fits(value jsontext.Value) bool {
	p := newPrinter(value)
	defer p.release()
	if p.value() != nil || p.overflow != "" || len(p.out) > MaxSize-1<<20 {
		return false
	}
	canonical := jsontext.Value(p.out)
	return canonical.Canonicalize() == nil
}
