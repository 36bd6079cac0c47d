package input_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// sample has a member of every shape a body of comet's has.
type sample struct {
	Name    string                   `json:"name"`
	Level   *models.Level            `json:"level"`
	Small   uint8                    `json:"small"`
	Rate    float64                  `json:"rate"`
	On      bool                     `json:"on"`
	At      *time.Time               `json:"at"`
	Tags    []string                 `json:"tags"`
	Inner   *inner                   `json:"inner"`
	List    []inner                  `json:"list"`
	Labels  map[string]int           `json:"labels"`
	Any     any                      `json:"any"`
	Raw     json.RawMessage          `json:"raw"`
	Key     []byte                   `json:"key"`
	Patch   models.Optional[string]  `json:"patch"`
	Patches models.Optional[[]inner] `json:"patches"`
	Hidden  string                   `json:"-"`
	embedded
}

type embedded struct {
	Base string `json:"base"`
}

type inner struct {
	A int `json:"a"`
	B *sample
}

// want is one expected field of an error.
type want struct{ pointer, rule, detail string }

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const known = "; known are "
	for name, c := range map[string]struct {
		body string
		code errs.Code
		want []want
	}{
		// Not one strict JSON value.
		"an empty body":                   {"", errs.MalformedJSON, []want{{"", "required", "the document is empty"}}},
		"white space only":                {" \r\n\t", errs.MalformedJSON, []want{{"", "required", ""}}},
		"a value cut short":               {`{"name":"x"`, errs.MalformedJSON, []want{{"", "syntax", "ends before it is complete"}}},
		"a string cut short":              {`{"name":"x`, errs.MalformedJSON, []want{{"/name", "syntax", "ends before"}}},
		"a trailing comma in an object":   {`{"name":"x",}`, errs.MalformedJSON, []want{{"", "syntax", "at column 12"}}},
		"a trailing comma in an array":    {`{"tags":["x",]}`, errs.MalformedJSON, []want{{"/tags", "syntax", ""}}},
		"a name without quotes":           {`{xame:1}`, errs.MalformedJSON, []want{{"", "syntax", "invalid character 'x'"}}},
		"a single quoted string":          {`{"name":'x'}`, errs.MalformedJSON, []want{{"/name", "syntax", ""}}},
		"a comment":                       {`{/*x*/}`, errs.MalformedJSON, []want{{"", "syntax", ""}}},
		"a missing colon":                 {`{"name" 1}`, errs.MalformedJSON, []want{{"/name", "syntax", "expecting ':'"}}},
		"a missing value":                 {`{"name"}`, errs.MalformedJSON, []want{{"/name", "syntax", ""}}},
		"a literal misspelt":              {`{"on":tru}`, errs.MalformedJSON, []want{{"/on", "syntax", ""}}},
		"True as Python writes it":        {`{"on":True}`, errs.MalformedJSON, []want{{"/on", "syntax", ""}}},
		"NaN":                             {`{"rate":NaN}`, errs.MalformedJSON, []want{{"/rate", "syntax", ""}}},
		"a leading zero":                  {`{"level":01}`, errs.MalformedJSON, []want{{"", "syntax", ""}}},
		"a leading plus":                  {`{"level":+1}`, errs.MalformedJSON, []want{{"/level", "syntax", ""}}},
		"a hex number":                    {`{"level":0x1}`, errs.MalformedJSON, []want{{"", "syntax", ""}}},
		"a raw control character":         {"{\"name\":\"a\x01\"}", errs.MalformedJSON, []want{{"/name", "syntax", ""}}},
		"a raw NUL":                       {"{\"name\":\"a\x00\"}", errs.MalformedJSON, []want{{"/name", "syntax", ""}}},
		"an unknown escape":               {`{"name":"\x41"}`, errs.MalformedJSON, []want{{"/name", "syntax", ""}}},
		"a byte order mark":               {"\uFEFF{}", errs.MalformedJSON, []want{{"", "syntax", "byte order mark"}}},
		"text that is no JSON":            {`hello`, errs.MalformedJSON, []want{{"", "syntax", ""}}},
		"a second value":                  {`{} {}`, errs.MalformedJSON, []want{{"", "trailing_data", "at column 4"}}},
		"a second brace":                  {`{"name":"x"}}`, errs.MalformedJSON, []want{{"", "trailing_data", ""}}},
		"garbage behind the value":        {`{"name":"x"} x`, errs.MalformedJSON, []want{{"", "trailing_data", ""}}},
		"a NUL behind the value":          {"{}\x00", errs.MalformedJSON, []want{{"", "trailing_data", ""}}},
		"a key given twice":               {`{"name":"a","name":"b"}`, errs.MalformedJSON, []want{{"/name", "duplicate_key", `name is given twice`}}},
		"a key given twice, escaped":      {`{"name":"a","n\u0061me":"b"}`, errs.MalformedJSON, []want{{"/name", "duplicate_key", ""}}},
		"a nested key given twice":        {`{"list":[{},{"a":1,"a":1}]}`, errs.MalformedJSON, []want{{"/list/1/a", "duplicate_key", ""}}},
		"a key given twice in any":        {`{"any":{"~/":1,"~/":2}}`, errs.MalformedJSON, []want{{"/any/~0~1", "duplicate_key", ""}}},
		"bytes that are not UTF-8":        {"{\"name\":\"a\xff\"}", errs.MalformedJSON, []want{{"/name", "utf8", "at column 11"}}},
		"an overlong encoding":            {"{\"name\":\"\xc0\xaf\"}", errs.MalformedJSON, []want{{"/name", "utf8", ""}}},
		"a surrogate in UTF-8":            {"{\"name\":\"\xed\xa0\x80\"}", errs.MalformedJSON, []want{{"/name", "utf8", ""}}},
		"half a surrogate pair":           {`{"name":"\ud800"}`, errs.MalformedJSON, []want{{"/name", "utf8", ""}}},
		"the other half":                  {`{"name":"\udc00 x"}`, errs.MalformedJSON, []want{{"/name", "utf8", ""}}},
		"a key that is not UTF-8":         {"{\"n\xff\":1}", errs.MalformedJSON, []want{{"", "utf8", ""}}},
		"bytes outside a string":          {"\xff\xfe{\x00}\x00", errs.MalformedJSON, []want{{"", "utf8", ""}}},
		"nesting one too deep":            {`{"any":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, errs.MalformedJSON, []want{{"/any" + strings.Repeat("/0", 63), "depth", "deeper than 64"}}},
		"a million brackets":              {strings.Repeat("[", 1<<20), errs.MalformedJSON, []want{{"", "depth", ""}}},
		"a syntax error after a mistake":  {`{"nope":1,"level":"3",}`, errs.MalformedJSON, []want{{"", "syntax", ""}}},
		"deep nesting of an unknown part": {`{"nope":` + strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70) + `}`, errs.MalformedJSON, []want{{"/nope" + strings.Repeat("/a", 63), "depth", ""}}},

		// JSON, but not what the route takes.
		"an array for the body":     {`[]`, errs.InvalidRequest, []want{{"", "type", "the document must be an object, not an array"}}},
		"a string for the body":     {`"x"`, errs.InvalidRequest, []want{{"", "type", "the document must be an object, not a string"}}},
		"a number for the body":     {`3`, errs.InvalidRequest, []want{{"", "type", ""}}},
		"true for the body":         {`true`, errs.InvalidRequest, []want{{"", "type", "must be an object, not true"}}},
		"null for the body":         {`null`, errs.InvalidRequest, []want{{"", "not_null", "the document must not be null"}}},
		"an unknown member":         {`{"nmae":"x"}`, errs.InvalidRequest, []want{{"/nmae", "unknown_field", "nmae is not a known member; did you mean name?"}}},
		"a member in another case":  {`{"Name":"x"}`, errs.InvalidRequest, []want{{"/Name", "unknown_field", ""}}},
		"a member that is not ours": {`{"Hidden":"x","-":1}`, errs.InvalidRequest, []want{{"/Hidden", "unknown_field", ""}, {"/-", "unknown_field", ""}}},
		"a nested unknown member":   {`{"inner":{"other":1}}`, errs.InvalidRequest, []want{{"/inner/other", "unknown_field", "inner.other is not a known member" + known + "a, B"}}},
		"an unknown member of a list entry": {
			`{"list":[{},{"c":{"x":[1]}}]}`, errs.InvalidRequest, []want{{"/list/1/c", "unknown_field", "list[1].c is"}},
		},
		"an unknown member with odd characters": {`{"a/b~c":1}`, errs.InvalidRequest, []want{{"/a~1b~0c", "unknown_field", "a/b~c is not"}}},
		"an empty member name":                  {`{"":1}`, errs.InvalidRequest, []want{{"/", "unknown_field", ""}}},
		"a prototype":                           {`{"__proto__":{}}`, errs.InvalidRequest, []want{{"/__proto__", "unknown_field", ""}}},
		"a string for an integer":               {`{"level":"3"}`, errs.InvalidRequest, []want{{"/level", "type", "level must be an integer, not a string"}}},
		"a fraction for an integer":             {`{"level":1.5}`, errs.InvalidRequest, []want{{"/level", "type", "level must be an integer in decimal digits, not 1.5"}}},
		"a negative exponent for an integer":    {`{"level":15e-1}`, errs.InvalidRequest, []want{{"/level", "type", "level must be an integer in decimal digits, not 15e-1"}}},
		"a small fraction for an integer":       {`{"level":1.00000000000000000001}`, errs.InvalidRequest, []want{{"/level", "type", ""}}},
		"an exponent beyond 64 bits":            {`{"level":1e1000000000}`, errs.InvalidRequest, []want{{"/level", "range", ""}}},
		"a long exponent for an integer":        {`{"level":1e99999999999999999999}`, errs.InvalidRequest, []want{{"/level", "type", ""}}},
		"a negative exponent for an unsigned":   {`{"small":-1e1}`, errs.InvalidRequest, []want{{"/small", "range", ""}}},
		"a boolean for an integer":              {`{"level":true}`, errs.InvalidRequest, []want{{"/level", "type", "level must be an integer, not true"}}},
		"an object for an integer":              {`{"level":{"a":[]}}`, errs.InvalidRequest, []want{{"/level", "type", "level must be an integer, not an object"}}},
		"an integer of 65 bits":                 {`{"level":9223372036854775808}`, errs.InvalidRequest, []want{{"/level", "range", "9223372036854775808 is out of range"}}},
		"an integer of 100 digits":              {`{"level":` + strings.Repeat("9", 100) + `}`, errs.InvalidRequest, []want{{"/level", "range", ""}}},
		"a byte of 256":                         {`{"small":256}`, errs.InvalidRequest, []want{{"/small", "range", "small must be an integer of at most 8 bits"}}},
		"a negative for an unsigned":            {`{"small":-1}`, errs.InvalidRequest, []want{{"/small", "range", ""}}},
		"a number too large for a double":       {`{"rate":1e400}`, errs.InvalidRequest, []want{{"/rate", "range", ""}}},
		"a number too large in any":             {`{"any":[1e400]}`, errs.InvalidRequest, []want{{"/any/0", "range", ""}}},
		"a string for a number":                 {`{"rate":"1"}`, errs.InvalidRequest, []want{{"/rate", "type", "rate must be a number, not a string"}}},
		"a number for a string":                 {`{"name":1}`, errs.InvalidRequest, []want{{"/name", "type", "name must be a string, not a number"}}},
		"an array for a string":                 {`{"name":["x"]}`, errs.InvalidRequest, []want{{"/name", "type", "name must be a string, not an array"}}},
		"a number for a boolean":                {`{"on":1}`, errs.InvalidRequest, []want{{"/on", "type", "on must be true or false, not a number"}}},
		"a string for a boolean":                {`{"on":"true"}`, errs.InvalidRequest, []want{{"/on", "type", "on must be true or false, not a string"}}},
		"a string for a list":                   {`{"tags":"a,b"}`, errs.InvalidRequest, []want{{"/tags", "type", "tags must be an array, not a string"}}},
		"a number in a list of strings":         {`{"tags":["a",1,"b",null]}`, errs.InvalidRequest, []want{{"/tags/1", "type", "tags[1] must be a string"}, {"/tags/3", "not_null", "tags[3] must not be null"}}},
		"a list for an object":                  {`{"inner":[]}`, errs.InvalidRequest, []want{{"/inner", "type", "inner must be an object, not an array"}}},
		"a string in a map of integers":         {`{"labels":{"x":"1"}}`, errs.InvalidRequest, []want{{"/labels/x", "type", "labels.x must be an integer"}}},
		"null for a string":                     {`{"name":null}`, errs.InvalidRequest, []want{{"/name", "not_null", "name must not be null, it must be a string"}}},
		"null for a list":                       {`{"tags":null}`, errs.InvalidRequest, []want{{"/tags", "not_null", ""}}},
		"null for a boolean":                    {`{"on":null}`, errs.InvalidRequest, []want{{"/on", "not_null", ""}}},
		"null in a map":                         {`{"labels":{"x":null}}`, errs.InvalidRequest, []want{{"/labels/x", "not_null", ""}}},
		"a date without a time":                 {`{"at":"2026-01-10"}`, errs.InvalidRequest, []want{{"/at", "date_time", `not "2026-01-10"`}}},
		"a time without a zone":                 {`{"at":"2026-01-10T15:30:00"}`, errs.InvalidRequest, []want{{"/at", "date_time", ""}}},
		"a time with a blank":                   {`{"at":"2026-01-10 15:30:00Z"}`, errs.InvalidRequest, []want{{"/at", "date_time", ""}}},
		"a time with a comma":                   {`{"at":"2026-01-10T15:30:00,5Z"}`, errs.InvalidRequest, []want{{"/at", "date_time", ""}}},
		"a day that does not exist":             {`{"at":"2026-02-30T00:00:00Z"}`, errs.InvalidRequest, []want{{"/at", "date_time", ""}}},
		"an empty time":                         {`{"at":""}`, errs.InvalidRequest, []want{{"/at", "date_time", ""}}},
		"seconds since 1970 for a time":         {`{"at":1767225600}`, errs.InvalidRequest, []want{{"/at", "type", "at must be a date and time"}}},
		"NUL in a string":                       {`{"name":"a\u0000b"}`, errs.InvalidRequest, []want{{"/name", "printable", "name must not contain the NUL character"}}},
		"NUL in a list":                         {`{"tags":["x","\u0000"]}`, errs.InvalidRequest, []want{{"/tags/1", "printable", ""}}},
		"NUL in any":                            {`{"any":{"x":"\u0000"}}`, errs.InvalidRequest, []want{{"/any/x", "printable", ""}}},
		"NUL in a name":                         {`{"labels":{"a\u0000":1}}`, errs.InvalidRequest, []want{{"/labels/a\x00", "printable", ""}}},
		"NUL in an optional":                    {`{"patch":"\u0000"}`, errs.InvalidRequest, []want{{"/patch", "printable", ""}}},
		"a wrong type in an optional":           {`{"patch":1}`, errs.InvalidRequest, []want{{"/patch", "type", "patch must be a string, not a number"}}},
		"a wrong entry in an optional":          {`{"patches":[{"a":"x"},{"z":1}]}`, errs.InvalidRequest, []want{{"/patches/0/a", "type", ""}, {"/patches/1/z", "unknown_field", ""}}},
		"base64 that is none":                   {`{"key":"***"}`, errs.InvalidRequest, []want{{"/key", "type", "key has an invalid value"}}},
		"all errors are reported at once": {
			`{"level":"3","nope":1,"tags":[1],"on":null,"inner":{"a":1.5}}`, errs.InvalidRequest, []want{
				{"/level", "type", ""}, {"/nope", "unknown_field", ""}, {"/tags/0", "type", ""},
				{"/on", "not_null", ""}, {"/inner/a", "type", ""},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v sample
			err := input.DecodeJSON([]byte(c.body), &v)
			var e *errs.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.code, e.Code)
			require.Len(t, e.Fields, len(c.want), "%v", e)
			for i, w := range c.want {
				if w.rule != "depth" || w.pointer != "" {
					require.Equal(t, w.pointer, e.Fields[i].Pointer)
				}
				require.Equal(t, w.rule, e.Fields[i].Rule)
				require.Contains(t, e.Fields[i].Detail, w.detail)
				require.Zero(t, e.Fields[i].Line, "a document of one line needs no line")
			}
			require.NotEmpty(t, e.Detail)
		})
	}
}

func TestDecodeReads(t *testing.T) {
	t.Parallel()

	t.Run("every shape", func(t *testing.T) {
		t.Parallel()
		var v sample
		require.NoError(t, input.DecodeJSON([]byte(` {"name":"\u00e9\ud83d\ude00","level":-0,"small":255,"rate":1e3,"on":true,
			"at":"2026-01-10T15:30:00.5+01:00","tags":[],"inner":{"a":9223372036854775807,"B":{"base":"x"}},"list":[{}],
			"labels":{"x":1},"any":{"x":[null,1]},"raw":{"x":null},"key":"aGk=","patch":"p","patches":[{"a":1}],"base":"b"} `), &v))
		require.Equal(t, "é😀", v.Name)
		require.Equal(t, models.LevelSystem, *v.Level)
		require.Equal(t, uint8(255), v.Small)
		require.InDelta(t, 1000, v.Rate, 0)
		require.Equal(t, time.Date(2026, 1, 10, 14, 30, 0, 5e8, time.UTC), v.At.UTC())
		require.Equal(t, []string{}, v.Tags)
		require.Equal(t, "x", v.Inner.B.Base)
		require.Equal(t, "b", v.Base)
		require.Equal(t, []byte("hi"), v.Key)
		require.JSONEq(t, `{"x":null}`, string(v.Raw))
		require.Equal(t, models.Some("p"), v.Patch)
		require.Equal(t, models.Some([]inner{{A: 1}}), v.Patches)
	})

	t.Run("null is absent for a pointer and known to an optional", func(t *testing.T) {
		t.Parallel()
		var v sample
		require.NoError(t, input.DecodeJSON([]byte(`{"level":null,"at":null,"inner":null,"any":null,"patch":null}`), &v))
		require.Equal(t, sample{Patch: models.Optional[string]{Set: true, Null: true}}, v)
	})

	t.Run("integers with a fraction of zeros or an exponent", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]int{
			"70000.0": 70000, "7e4": 70000, "7E+4": 70000, "0.00007e9": 70000, "-1.5e1": -15, "7000e-3": 7, "0e99999999999999999999": 0, "-0.0": 0,
			"9223372036854775807.0": math.MaxInt64, "-9.223372036854775808e18": math.MinInt64,
		} {
			var v sample
			require.NoError(t, input.DecodeJSON([]byte(`{"inner":{"a":`+text+`},"any":`+text+`}`), &v), text)
			require.Equal(t, want, v.Inner.A, text)
		}
		var v sample
		require.NoError(t, input.DecodeJSON([]byte(`{"small":2.55e2}`), &v))
		require.Equal(t, uint8(255), v.Small)
	})

	t.Run("nesting at the limit", func(t *testing.T) {
		t.Parallel()
		var v sample
		require.NoError(t, input.DecodeJSON([]byte(`{"any":`+strings.Repeat("[", 63)+strings.Repeat("]", 63)+`}`), &v))
	})

	t.Run("many brackets side by side are not deep", func(t *testing.T) {
		t.Parallel()
		var v sample
		require.NoError(t, input.DecodeJSON([]byte(`{"list":[`+strings.Repeat(`{},`, 500)+`{}]}`), &v))
		require.Len(t, v.List, 501)
	})

	t.Run("the words null and u0000 inside strings", func(t *testing.T) {
		t.Parallel()
		var v sample
		require.NoError(t, input.DecodeJSON([]byte(`{"name":"null \\u0000"}`), &v))
		require.Equal(t, `null \u0000`, v.Name)
	})

	t.Run("other targets than structs", func(t *testing.T) {
		t.Parallel()
		var list []int
		require.NoError(t, input.DecodeJSON([]byte(`[1,2]`), &list))
		var anything any
		require.NoError(t, input.DecodeJSON([]byte(`null`), &anything))
		var text string
		require.NoError(t, input.DecodeJSON([]byte(`"x"`), &text))
	})

	t.Run("a target that is no pointer is our mistake", func(t *testing.T) {
		t.Parallel()
		for _, v := range []any{nil, sample{}, (*sample)(nil)} {
			require.True(t, errs.Is(input.DecodeJSON([]byte(`{"name":null}`), v), errs.Internal) ||
				errs.Is(input.DecodeJSON([]byte(`{}`), v), errs.Internal))
		}
	})
}

func TestDecodeLimitsItsAnswer(t *testing.T) {
	t.Parallel()
	var v sample
	err := input.DecodeJSON([]byte(`{"tags":[`+strings.Repeat("1,", 5000)+`1],"`+strings.Repeat("x", 5000)+`":1}`), &v)
	var e *errs.Error
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Fields, 100)
	require.Less(t, len(e.Error()), 20_000)
}

// TestNamesDoNotMultiply has small mistakes below long names: what is said of
// each of them must not repeat the names.
func TestNamesDoNotMultiply(t *testing.T) {
	t.Parallel()
	long, longest := strings.Repeat("k", 1<<20), strings.Repeat("n", input.MaxName)
	below := strings.Repeat(`"\u0000",`, 150) + "0"
	for name, c := range map[string]struct {
		body string
		want []want // the first fields
	}{
		"below a long name nothing is judged": {
			`{"any":{"` + long + `":[` + below + `],"x":"\u0000"}}`,
			[]want{{"/any/" + strings.Repeat("k", 64) + "…", "max", "has a name longer than 256 bytes"}, {"/any/x", "printable", ""}},
		},
		"an unknown name that is long": {
			`{"` + long + `":null,"tags":[1]}`,
			[]want{{"/" + strings.Repeat("k", 64) + "…", "max", ""}, {"/tags/0", "type", ""}},
		},
		"a long name in a map": {
			`{"labels":{"` + long + `":1}}`, []want{{"/labels/" + strings.Repeat("k", 64) + "…", "max", ""}},
		},
		"a long name of escapes": {
			`{"labels": {"` + strings.Repeat(`\u00e9`, 129) + `" : 1}}`, []want{{"/labels/" + strings.Repeat("é", 64) + "…", "max", ""}},
		},
		"a name that is NUL only": {
			`{"any":{"` + strings.Repeat(`\u0000`, 300) + `":1}}`, []want{{"/any/" + strings.Repeat("\x00", 64) + "…", "max", ""}},
		},
		"many names at the limit inside each other": {
			`{"any":` + strings.Repeat(`{"`+longest+`":`, 60) + "[" + below + "]" + strings.Repeat("}", 60) + `}`, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v sample
			var e *errs.Error
			require.ErrorAs(t, input.DecodeJSON([]byte(c.body), &v), &e)
			if c.want != nil {
				require.Len(t, e.Fields, len(c.want), "%v", e)
			}
			for i, w := range c.want {
				require.Equal(t, w.pointer, e.Fields[i].Pointer)
				require.Equal(t, w.rule, e.Fields[i].Rule)
				require.Contains(t, e.Fields[i].Detail, w.detail)
			}
			require.Less(t, len(e.Error()), 200_000)
		})
	}

	t.Run("nor in what is no JSON", func(t *testing.T) {
		t.Parallel()
		for _, body := range []string{
			`{"` + long + `":x}`, `{"` + long + `":` + strings.Repeat("[", 100), `{"key":{"` + long + `":"` + "\xff" + `"}}`,
		} {
			var e *errs.Error
			require.ErrorAs(t, input.DecodeJSON([]byte(body), new(sample)), &e)
			require.Equal(t, errs.MalformedJSON, e.Code)
			require.Less(t, len(e.Error()), 2000)
		}
	})
	t.Run("a name at the limit is read, and so is long text", func(t *testing.T) {
		t.Parallel()
		var v sample
		require.NoError(t, input.DecodeJSON([]byte(`{"labels":{"`+longest+`":1},"name":"`+long+`","tags":["`+long+`"]}`), &v))
		require.Equal(t, 1, v.Labels[longest])
	})
}

// TestAFullAnswerCostsNothingMore counts what is allocated for 20,000 unknown
// members: the answer names a hundred, and only for those may a near word be sought.
func TestAFullAnswerCostsNothingMore(t *testing.T) {
	var body strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&body, `"nmae%d":1,`, i)
	}
	text := []byte("{" + body.String() + `"on":true}`)
	require.Less(t, testing.AllocsPerRun(1, func() {
		require.Error(t, input.DecodeJSON(text, new(sample)))
	}), 60_000.0, "two or three a member for reading it")
}

func TestDecodeTellsTheLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body  string
		lines []int
	}{
		"of each bad member":          {"{\n  \"level\": \"3\",\n  \"name\": \"x\",\n  \"nope\": 1\n}\n", []int{2, 4}},
		"of a syntax error":           {"{\n  \"level\": 3\n  \"name\": 1\n}", []int{3}},
		"of a key given twice":        {"{\n\"name\": \"x\",\n\n\"name\": \"y\"}", []int{4}},
		"of what follows":             {"{}\n\nx", []int{3}},
		"of bytes that are not UTF-8": {"{\n\"name\": \"\xff\"}", []int{2}},
		"of a raw line feed":          {"{\"name\":\"a\nb\"}", []int{1}},
		"with carriage returns":       {"{\r\n\"level\": \"3\"}\r\n", []int{2}},
		"of an early end":             {"{\n\"level\": 3\n", []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v sample
			var e *errs.Error
			require.ErrorAs(t, input.DecodeJSON([]byte(c.body), &v), &e)
			lines := []int{}
			for _, f := range e.Fields {
				lines = append(lines, f.Line)
			}
			require.Equal(t, c.lines, lines)
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"id":"custom-assistant","name":"Custom Assistant","level":3,"sphere_id":1,"frequency_hz":444,
		"capabilities":["custom_task_1","custom_task_2"],"description":"A custom L3 assistant","parent_id":"finance-personal","token_budget":15000}`)
	b.ReportAllocs()
	for b.Loop() {
		var v models.AgentDraft
		if err := input.DecodeJSON(body, &v); err != nil {
			b.Fatal(err)
		}
	}
}
