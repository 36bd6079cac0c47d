// Package columns converts Go values to column values of both databases and back, for gorm and for
// hand-written statements alike. It runs no statements.
package columns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"comet/models"
)

// A column stores a value by its Go type:
//
//	time.Time, *time.Time      microseconds since 1970 UTC; the zero time is 0, nil is NULL
//	time.Duration              microseconds
//	json.RawMessage            its text, '' for nil
//	[32]byte                   its bytes
//	[]byte                     unchanged, nil is NULL
//	the types of enumerations  their index
//	other slices, structs      JSON, [] for a nil slice
//	other types                unchanged, a pointer as its target
//
// No field needs a tag for this, except a slice: gorm's serializer:json makes gorm treat it as a
// column and not as a relation.

// enumerations has the values of each enumeration, which are stored as their index.
var enumerations = sync.OnceValue(func() map[reflect.Type][]string { //nolint:gochecknoglobals // built once, never changed
	return map[reflect.Type][]string{
		reflect.TypeFor[models.TaskState]():        texts(models.TaskNew, models.TaskRunning, models.TaskDone, models.TaskFailed, models.TaskCancelled),
		reflect.TypeFor[models.WaitReason]():       texts(models.NotWaiting, models.WaitForWorker, models.WaitForRetry, models.WaitForReply),
		reflect.TypeFor[models.AttemptState]():     texts(models.AttemptAssigned, models.AttemptRunning, models.AttemptSucceeded, models.AttemptFailed, models.AttemptTimedOut, models.AttemptCancelled, models.AttemptNone),
		reflect.TypeFor[models.WorkerState]():      texts(models.WorkerOffline, models.WorkerOnline, models.WorkerBusy),
		reflect.TypeFor[models.SessionState]():     texts(models.SessionOpen, models.SessionClosed),
		reflect.TypeFor[models.ReservationState](): texts(models.ReservationHeld, models.ReservationSettled, models.ReservationReleased, models.ReservationExpired),
	}
})

// Index returns the number that is stored for a value of an enumeration, -1 for an invalid value.
func Index[T ~string](value T) int {
	return slices.Index(enumerations()[reflect.TypeFor[T]()], string(value))
}

func texts[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// Values replaces the arguments of a statement with their column values.
func Values(args []any) error {
	for i, arg := range args {
		v, err := Value(arg)
		if err != nil {
			return err
		}
		args[i] = v
	}
	return nil
}

// Value returns the column value of a Go value.
func Value(value any) (any, error) {
	switch v := value.(type) {
	case nil, string, int64, bool, float64, []any:
		return v, nil
	case []byte:
		if v == nil {
			return nil, nil
		}
		return v, nil
	case error:
		return nil, v
	case int:
		return int64(v), nil
	case time.Time:
		return micros(v), nil
	case time.Duration:
		return v.Microseconds(), nil
	case json.RawMessage:
		return string(v), nil
	case [32]byte:
		return v[:], nil
	case []string:
		return encodeStrings(v)
	}
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil, nil
		}
		return Value(v.Elem().Interface())
	case reflect.String:
		if values := enumerations()[v.Type()]; values != nil {
			return int64(slices.Index(values, v.String())), nil // the columns' CHECK refuses -1
		}
		return v.String(), nil
	case reflect.Int, reflect.Int64:
		return v.Int(), nil
	case reflect.Slice:
		if v.IsNil() {
			return "[]", nil
		}
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// column is the scan target of a stored value. It keeps no reference to the driver's memory.
type column struct{ into any }

// Target returns the scan target of a column. database/sql scans the commonest types itself and
// fails for NULL, except into **string and *[]byte. The columns of the other types contain no NULL.
func Target(into any) any {
	switch into.(type) {
	case *string, *int64, *bool, *float64, **string, *[]byte:
		return into
	}
	return &column{plain(into)}
}

// plain converts a pointer to a named number or text to one that needs no reflection.
func plain(pointer any) any {
	switch pointer.(type) {
	case *int, *string, *time.Time, *time.Duration, **int, **int64, *[]string, *json.RawMessage:
		return pointer
	}
	switch value := reflect.ValueOf(pointer); value.Type().Elem().Kind() {
	case reflect.String:
		if enumerations()[value.Type().Elem()] == nil {
			return value.Convert(reflect.TypeFor[*string]()).Interface()
		}
	case reflect.Int:
		return value.Convert(reflect.TypeFor[*int]()).Interface()
	}
	return pointer
}

// valueAt returns the column value of the variable that pointer points to, or an error in its place,
// which Values returns. It copies only what is stored.
func valueAt(pointer any) any {
	switch v := plain(pointer).(type) {
	case *string:
		return *v
	case *int:
		return int64(*v)
	case *int64:
		return *v
	case *bool:
		return *v
	case *time.Time:
		return micros(*v)
	default:
		value, err := Value(reflect.ValueOf(v).Elem().Interface())
		if err != nil {
			return err
		}
		return value
	}
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Scan implements sql.Scanner. NULL becomes the zero value.
func (c *column) Scan(v any) (err error) {
	switch into := c.into.(type) {
	case *time.Time:
		*into = time.Time{}
		if us := whole(v); us != 0 {
			*into = time.UnixMicro(us).UTC()
		}
	case **time.Time:
		if *into = nil; v != nil {
			*into = new(time.UnixMicro(whole(v)).UTC())
		}
	case *time.Duration:
		*into = time.Duration(whole(v)) * time.Microsecond
	case *json.RawMessage:
		*into = nil
		if text := bytesOf(v); len(text) > 0 {
			*into = text
		}
	case *[32]byte:
		*into = [32]byte{}
		copy(into[:], bytesOf(v))
	case *[]string:
		*into, err = decodeStrings(textOf(v))
	case *string:
		*into = textOf(v)
	case *int:
		*into = int(whole(v))
	case **int:
		if *into = nil; v != nil {
			*into = new(int(whole(v)))
		}
	case **int64:
		if *into = nil; v != nil {
			*into = new(whole(v))
		}
	default:
		err = load(reflect.ValueOf(c.into).Elem(), v)
	}
	return err
}

// load sets a variable of any other type from its column value.
func load(into reflect.Value, v any) error {
	switch t := into.Type(); {
	case v == nil:
		into.SetZero()
	case t.Kind() == reflect.Pointer:
		into.Set(reflect.New(t.Elem()))
		return (&column{into.Interface()}).Scan(v)
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		into.SetInt(whole(v))
	case t.Kind() == reflect.Bool:
		truth, _ := v.(bool)
		into.SetBool(truth || whole(v) != 0)
	case t.Kind() == reflect.Float64:
		f, _ := v.(float64)
		into.SetFloat(f)
	case t.Kind() == reflect.String:
		values := enumerations()[t]
		if values == nil {
			into.SetString(textOf(v))
			return nil
		}
		index := whole(v)
		if index < 0 || index >= int64(len(values)) {
			return fmt.Errorf("%d is not the index of a value of %s", index, t)
		}
		into.SetString(values[index])
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		list, err := decodeStrings(textOf(v))
		into.Set(reflect.MakeSlice(t, len(list), len(list)))
		for i, text := range list {
			into.Index(i).SetString(text)
		}
		return err
	case t == reflect.TypeFor[[]byte]():
		into.SetBytes(bytesOf(v))
	default:
		into.SetZero()
		return json.Unmarshal(bytesOf(v), into.Addr().Interface())
	}
	return nil
}

// whole returns a whole number that a driver returned, 0 for NULL. Both drivers return int64.
func whole(v any) int64 {
	n, _ := v.(int64)
	return n
}

// bytesOf returns a copy of a text or of bytes that a driver returned, nil for NULL.
func bytesOf(v any) []byte {
	switch v := v.(type) {
	case string:
		return []byte(v)
	case []byte:
		return bytes.Clone(v)
	}
	return nil
}

// textOf returns a text that a driver returned, "" for NULL.
func textOf(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	return string(bytesOf(v))
}

// encodeStrings makes the JSON array that decodeStrings reads; nil is an empty one.
func encodeStrings(list []string) (string, error) {
	if len(list) == 0 {
		return "[]", nil
	}
	if slices.ContainsFunc(list, needsEscape) {
		b, err := json.Marshal(list)
		return string(b), err
	}
	return `["` + strings.Join(list, `","`) + `"]`, nil
}

// needsEscape reports whether encoding/json may escape a character of the text.
func needsEscape(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || strings.ContainsRune(`"\<>&`, c) })
}

// decodeStrings reads a JSON array of strings as encodeStrings writes it. Without
// escapes, which is the common case, every quotation mark is one around a string,
// and cutting the text up is ten times faster than a decoder.
func decodeStrings(s string) ([]string, error) {
	if s == "[]" {
		return []string{}, nil
	}
	if inner, ok := strings.CutPrefix(s, `["`); ok && !strings.Contains(inner, `\`) {
		if inner, ok := strings.CutSuffix(inner, `"]`); ok {
			if list := strings.Split(inner, `","`); strings.Count(inner, `"`) == 2*(len(list)-1) {
				return list, nil
			}
		}
	}
	var out []string
	err := json.Unmarshal([]byte(s), &out)
	return out, err
}

// Text returns text that both databases can store: at most limit bytes of valid UTF-8
// without NUL.
func Text(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Arrays returns a source of rows for PostgreSQL from their values, width values per row. It cannot
// tell the type of a column in which every value is NULL.
func Arrays(width int, args []any) (source string, columns []any, ok bool) {
	if len(args) <= width {
		return "", nil, false
	}
	types := make([]string, width)
	columns = make([]any, width)
	for c := range width {
		column := make([]any, 0, len(args)/width)
		for i := c; i < len(args); i += width {
			column = append(column, args[i])
			if types[c] == "" {
				types[c] = arrayOf(args[i])
			}
		}
		if columns[c] = column; types[c] == "" {
			return "", nil, false
		}
	}
	return "unnest(" + strings.Join(types, ", ") + ")", columns, true
}

// arrayOf is the placeholder of a column that holds v, "" for NULL.
func arrayOf(v any) string {
	switch v.(type) {
	case string:
		return "?::text[]"
	case int, int64:
		return "?::bigint[]"
	case bool:
		return "?::boolean[]"
	case []byte:
		return "?::bytea[]"
	}
	return ""
}
