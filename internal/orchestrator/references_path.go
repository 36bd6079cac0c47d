package orchestrator

import (
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The longest path of a reference.
const (
	maxPathNames = 16
	maxPathBytes = 256
)

// memberAt follows a path of names into a JSON text, nil where that leads nowhere or the
// text is no JSON.
func (r *references) memberAt(text, path string) (jsontext.Value, error) {
	names := strings.SplitN(path, ".", maxPathNames+1)
	if len(path) > maxPathBytes || len(names) > maxPathNames {
		return nil, r.invalid("the path of a reference may have %d names and %d bytes", maxPathNames, maxPathBytes)
	}
	if r.jsonBytes += int64(len(text)); r.jsonBytes > maxWalked {
		return nil, r.invalid("the references lead through more than %d bytes of JSON", maxWalked)
	}
	dec := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true))
	value, err := walkPath(dec, names)
	if err == nil {
		_, err = dec.ReadToken()
	}
	if !errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // it has no members
	}
	return value, nil
}

// walkPath reads the next value, once, and returns what a path leads to in it, nil where it
// leads nowhere. Of several members with one name the last one counts.
func walkPath(dec *jsontext.Decoder, names []string) (value jsontext.Value, err error) {
	if len(names) == 0 {
		value, err = dec.ReadValue()
		return value.Clone(), err
	}
	if dec.PeekKind() != '{' {
		return nil, dec.SkipValue()
	}
	if _, err = dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		if name.String() != names[0] {
			err = dec.SkipValue()
		} else {
			value, err = walkPath(dec, names[1:])
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = dec.ReadToken()
	return value, err
}
