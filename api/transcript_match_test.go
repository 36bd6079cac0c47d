package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Placeholders in an expected array that are not compared with entries.
const (
	others   = "$OTHERS"   // further entries may stand anywhere
	anyOrder = "$ANYORDER" // the order does not matter
)

// each, as the only member of an added entry, adds its members to every printed one.
const each = "$EACH"

// matcher compares responses with a transcript. It stores the values that the placeholders
// $1 to $9 matched.
type matcher struct{ kept map[string]string }

// placeholders matches the placeholders that may be a part of a text.
func placeholders() *regexp.Regexp { return regexp.MustCompile(`\$(ANY|TIME|[1-9])`) }

// fill replaces each placeholder by its stored value.
func (m *matcher) fill(text string) string {
	return placeholders().ReplaceAllStringFunc(text, func(name string) string {
		if kept, ok := m.kept[name]; ok {
			return kept
		}
		return name
	})
}

// text reports whether got matches the pattern, and stores the values that new placeholders
// match.
func (m *matcher) text(pattern, got string) bool {
	var expression strings.Builder
	var fresh []string
	last := 0
	for _, at := range placeholders().FindAllStringIndex(pattern, -1) {
		expression.WriteString(regexp.QuoteMeta(pattern[last:at[0]]))
		name := pattern[at[0]:at[1]]
		last = at[1]
		switch kept, known := m.kept[name]; {
		case name == "$ANY":
			expression.WriteString(`.+?`)
		case name == "$TIME":
			expression.WriteString(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`)
		case known:
			expression.WriteString(regexp.QuoteMeta(kept))
		default:
			expression.WriteString(`(.+?)`)
			fresh = append(fresh, name)
		}
	}
	expression.WriteString(regexp.QuoteMeta(pattern[last:]))
	found := regexp.MustCompile(`(?s)^` + expression.String() + `$`).FindStringSubmatch(got)
	for i, name := range fresh {
		if found != nil {
			m.kept[name] = found[i+1]
		}
	}
	return found != nil
}

// value returns the differences between a JSON value and the expected one.
func (m *matcher) value(at string, want, got any) []string {
	pattern, isText := want.(string)
	switch {
	case isText && pattern == "$ANY":
		if got == nil {
			return []string{at + " is null"}
		}
		return nil
	case isText:
		if m.text(pattern, plain(got)) && (isString(got) || strings.HasPrefix(pattern, "$")) {
			return nil
		}
		return []string{fmt.Sprintf("%s is %s, not %q", at, written(got), pattern)}
	}
	switch want := want.(type) {
	case map[string]any:
		if got, ok := got.(map[string]any); ok {
			return m.object(at, want, got)
		}
	case []any:
		if got, ok := got.([]any); ok {
			return m.list(at, want, got)
		}
	default:
		if want == got {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s is %s, not %s", at, written(got), written(want))}
}

func (m *matcher) object(at string, want, got map[string]any) (differences []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, ok := got[name]
		if !ok {
			differences = append(differences, at+"/"+name+" is missing")
			continue
		}
		differences = append(differences, m.value(at+"/"+name, want[name], value)...)
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			differences = append(differences, fmt.Sprintf("%s/%s is too much: %s", at, name, written(got[name])))
		}
	}
	return differences
}

func (m *matcher) list(at string, want, got []any) (differences []string) {
	without := func(mark string) bool {
		n := len(want)
		want = slices.DeleteFunc(slices.Clone(want), func(v any) bool { return v == mark })
		return len(want) < n
	}
	if without(others) {
		for _, value := range got {
			if len(want) > 0 && len(m.value(at, want[0], value)) == 0 {
				want = want[1:]
			}
		}
		for _, value := range want {
			differences = append(differences, at+" has no such entry, or not in this order: "+written(value))
		}
		return differences
	}
	if without(anyOrder) {
		byText := func(a, b any) int { return strings.Compare(written(a), written(b)) }
		slices.SortFunc(want, byText)
		got = slices.SortedFunc(slices.Values(got), byText)
	}
	if len(want) != len(got) {
		return []string{fmt.Sprintf("%s has %d entries, not %d: %s", at, len(got), len(want), written(got))}
	}
	for i := range want {
		differences = append(differences, m.value(fmt.Sprintf("%s/%d", at, i), want[i], got[i])...)
	}
	return differences
}

// merge adds members to the JSON that a document prints. It replaces no member.
func merge(printed, added any) (any, error) {
	switch p := printed.(type) {
	case map[string]any:
		a, ok := added.(map[string]any)
		if !ok {
			break
		}
		for name, value := range a {
			if _, both := p[name]; !both {
				p[name] = value
				continue
			}
			merged, err := merge(p[name], value)
			if err != nil {
				return nil, err
			}
			p[name] = merged
		}
		return p, nil
	case []any:
		if a, ok := added.([]any); ok {
			return mergeEntries(p, a)
		}
	}
	return nil, fmt.Errorf("%s is printed and cannot be replaced by %s", written(printed), written(added))
}

// mergeEntries appends the added entries, except those with $EACH.
func mergeEntries(printed, added []any) (any, error) {
	out := slices.Clone(printed)
	for _, entry := range added {
		members, ok := entry.(map[string]any)
		if _, ofEach := members[each]; !ok || !ofEach || len(members) > 1 {
			out = append(out, entry)
			continue
		}
		for i := range printed {
			merged, err := merge(printed[i], members[each])
			if err != nil {
				return nil, err
			}
			out[i] = merged
		}
	}
	return out, nil
}

// parse reads one JSON value; numbers stay as they are written.
func parse(data []byte) (value any, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the JSON value")
	}
	return value, nil
}

func isString(v any) bool { _, ok := v.(string); return ok }

// plain is a scalar as text, without the quotes of a string.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return written(v)
}

func written(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestMatcher(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want, got  string
		difference string // "" for none
	}{
		"equal values":                    {`{"a":[1,"x",null,true],"b":{}}`, `{"b":{},"a":[1,"x",null,true]}`, ""},
		"another number":                  {`{"a":1}`, `{"a":2}`, "/a is 2, not 1"},
		"a number written otherwise":      {`{"a":1}`, `{"a":1.0}`, "/a is 1.0, not 1"},
		"a number for a string":           {`{"a":"1"}`, `{"a":1}`, "/a is 1"},
		"a missing member":                {`{"a":1,"b":2}`, `{"a":1}`, "/b is missing"},
		"a member too much":               {`{"a":1}`, `{"a":1,"b":2}`, "/b is too much: 2"},
		"another order of a list":         {`[1,2]`, `[2,1]`, "/0 is 2, not 1"},
		"a list that is longer":           {`[1]`, `[1,2]`, " has 2 entries, not 1"},
		"null for anything":               {`{"a":"$ANY"}`, `{"a":null}`, "/a is null"},
		"anything":                        {`{"a":"$ANY"}`, `{"a":[1]}`, ""},
		"a time":                          {`{"a":"$TIME"}`, `{"a":"2026-01-10T15:30:00.5Z"}`, ""},
		"a time of another zone":          {`{"a":"$TIME"}`, `{"a":"2026-01-10T15:30:00+01:00"}`, "/a is"},
		"something kept and met again":    {`["$1","x $1","$2",3]`, `["a","x a",3,3]`, ""},
		"something else than what was":    {`["$1","$1"]`, `["a","b"]`, "/1 is"},
		"entries among others":            {`[2,"$OTHERS",4]`, `[1,2,3,4,5]`, ""},
		"entries among others, misplaced": {`[4,"$OTHERS",2]`, `[1,2,3,4,5]`, "no such entry"},
		"entries in any order":            {`[{"a":2},{"a":1},"$ANYORDER"]`, `[{"a":1},{"a":2}]`, ""},
		"an entry too many":               {`[2,"$ANYORDER"]`, `[1,2]`, " has 2 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := parse([]byte(c.want))
			require.NoError(t, err)
			got, err := parse([]byte(c.got))
			require.NoError(t, err)
			differences := (&matcher{kept: map[string]string{}}).value("", want, got)
			if c.difference == "" {
				require.Empty(t, differences)
			} else {
				require.Contains(t, strings.Join(differences, "\n"), c.difference)
			}
		})
	}
	for _, added := range []string{`{"a":"ours"}`, `{"l":[{"$EACH":{"b":2}}]}`} {
		_, err := merge(parsed(t, `{"a":"printed","l":[{"b":1}]}`), parsed(t, added))
		require.Error(t, err, "what a document prints cannot be replaced")
	}
	merged, err := merge(parsed(t, `{"l":[{"a":1},{"a":2}]}`), parsed(t, `{"l":["$OTHERS",{"$EACH":{"b":3}},{"c":4}],"m":5}`))
	require.NoError(t, err)
	require.Equal(t, parsed(t, `{"l":[{"a":1,"b":3},{"a":2,"b":3},"$OTHERS",{"c":4}],"m":5}`), merged)
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	value, err := parse([]byte(text))
	require.NoError(t, err)
	return value
}
