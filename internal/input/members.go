package input

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// decoders contains unused decoders, which keep their buffers.
var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(bytes.NewReader(nil)) }} //nolint:gochecknoglobals // a pool is shared by design

// EachMember calls member with each member of a JSON object until member returns false. It reports
// whether member returned true for all of them and data is exactly one valid object. Duplicate names
// and invalid UTF-8 at any depth are invalid. The value is a slice of data.
func EachMember(data []byte, member func(name string, value []byte) bool) bool {
	return each(data, '{', member)
}

// EachElement is EachMember for the elements of an array, which have no name.
func EachElement(data []byte, element func(value []byte) bool) bool {
	return each(data, '[', func(_ string, value []byte) bool { return element(value) })
}

func each(data []byte, open jsontext.Kind, fn func(name string, value []byte) bool) bool {
	dec, _ := decoders.Get().(*jsontext.Decoder)
	dec.Reset(bytes.NewBuffer(data))
	defer func() {
		dec.Reset(bytes.NewReader(nil)) // drops the reference to data
		decoders.Put(dec)
	}()
	if first, err := dec.ReadToken(); err != nil || first.Kind() != open {
		return false
	}
	for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
		name := ""
		if open == '{' {
			token, err := dec.ReadToken()
			if err != nil {
				return false
			}
			name = token.String()
		}
		value, err := dec.ReadValue()
		if err != nil {
			return false
		}
		end := dec.InputOffset()
		if !fn(name, data[end-int64(len(value)):end:end]) {
			return false
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return false
	}
	return len(bytes.TrimSpace(data[dec.InputOffset():])) == 0
}

// JSONString returns the value of a JSON string, and whether it is one.
func JSONString(value []byte) (string, bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	text, err := jsontext.AppendUnquote(nil, value)
	return string(text), err == nil
}

// Canonical returns the canonical form of a JSON value (RFC 8785), which does not depend on the order
// of members, white space and the form of numbers. Numbers are equal only if their exact values are:
// one that a double cannot represent keeps all its digits. JSON without a canonical form, such as an
// object with duplicate names, is compacted; other data is returned unchanged.
func Canonical(data []byte) []byte {
	value := jsontext.Value(bytes.Clone(data))
	if value.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) != nil {
		_ = value.Compact() // leaves data that is not JSON unchanged
		return value
	}
	out, copied := make([]byte, 0, len(value)), 0
	dec := jsontext.NewDecoder(bytes.NewBuffer(value))
	for token, err := dec.ReadToken(); err == nil; token, err = dec.ReadToken() {
		if token.Kind() == '0' {
			number, end := token.String(), int(dec.InputOffset())
			out = append(append(out, value[copied:end-len(number)]...), canonicalNumber(number)...)
			copied = end
		}
	}
	return append(out, value[copied:]...)
}

// canonicalNumber returns a JSON number in the form of RFC 8785 or, if that form has another value, as
// its digits and exponent.
func canonicalNumber(text string) string {
	double := jsontext.Value(text)
	_ = double.Canonicalize() // text is valid
	if exact := decimal(text); decimal(string(double)) != exact {
		return exact
	}
	return string(double)
}

// decimal returns a JSON number as an integer without trailing zeros and an exponent, such as 15e-1.
// A number whose exponent exceeds 62 bits is returned unchanged.
func decimal(text string) string {
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	digits := strings.TrimPrefix(mantissa, "-")
	sign := mantissa[:len(mantissa)-len(digits)]
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	exponent, err := strconv.ParseInt(cmp.Or(power, "0"), 10, 62)
	switch {
	case significant == "":
		return "0"
	case err != nil:
		return text
	}
	exponent += int64(len(digits) - len(significant) - len(fraction))
	return sign + significant + "e" + strconv.FormatInt(exponent, 10)
}
