package columns

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm/schema"

	"comet/store/seal"
)

// Layout describes a type of rows for statements: one column for each field of a struct, in snake
// case, as in gorm's schema of the type.
type Layout struct {
	Table   string
	Columns []string
	// Keys are the columns of the primary key.
	Keys []string
	// Selects is "SELECT columns FROM table ", Inserts "INSERT INTO table (columns) " without the
	// columns that the database sets.
	Selects, Inserts string

	fields  []*schema.Field // of Columns
	created []*schema.Field // of Inserts
	byName  map[string]*schema.Field
}

//nolint:gochecknoglobals // a cache of immutable values
var layouts sync.Map

// Of returns the layout of a type of rows. It panics for any other type.
func Of[T any]() *Layout {
	t := reflect.TypeFor[T]()
	if known, ok := layouts.Load(t); ok {
		return known.(*Layout)
	}
	s, err := schema.Parse(new(T), &sync.Map{}, Names{}) // a shared cache would wait on channels
	if err != nil {
		panic(fmt.Sprintf("the columns of %s: %v", t, err))
	}
	l := &Layout{Table: s.Table, byName: s.FieldsByDBName, Keys: s.PrimaryFieldDBNames}
	var created []string
	for _, f := range s.Fields {
		if f.DBName == "" {
			continue
		}
		l.Columns, l.fields = append(l.Columns, f.DBName), append(l.fields, f)
		if f.Creatable {
			l.created, created = append(l.created, f), append(created, f.DBName)
		}
	}
	l.Selects = "SELECT " + strings.Join(l.Columns, ", ") + " FROM " + l.Table + " "
	l.Inserts = "INSERT INTO " + l.Table + " (" + strings.Join(created, ", ") + ") "
	layouts.Store(t, l)
	return l
}

// List returns the columns of a type of rows as a list.
func List[T any]() string { return strings.Join(Of[T]().Columns, ", ") }

// Except returns the columns of a type of rows that are not in a list.
func Except[T any](excluded ...string) []string {
	return slices.DeleteFunc(slices.Clone(Of[T]().Columns), func(c string) bool { return slices.Contains(excluded, c) })
}

// Targets returns the scan targets of a row: of each field of a struct, or of a single value.
func Targets[T any](row *T) []any {
	value := reflect.ValueOf(row).Elem()
	if value.Kind() != reflect.Struct || value.Type() == reflect.TypeFor[time.Time]() {
		return []any{Target(row)}
	}
	l := Of[T]()
	out := make([]any, len(l.fields))
	for i, f := range l.fields {
		out[i] = Target(pointerTo(f, value))
	}
	return out
}

func pointerTo(f *schema.Field, row reflect.Value) any {
	return f.ReflectValueOf(context.Background(), row).Addr().Interface()
}

// Created returns the values of the columns that the INSERT of a row sets.
func Created[T any](row *T) []any {
	return values(Of[T]().created, row)
}

// Some returns the values of some columns of a row, in their order.
func Some[T any](row *T, columns []string) []any {
	l := Of[T]()
	fields := make([]*schema.Field, len(columns))
	for i, c := range columns {
		fields[i] = l.byName[c]
	}
	return values(fields, row)
}

// Changed returns the columns in which two rows differ.
func Changed[T any](before, after *T) (changed []string) {
	l := Of[T]()
	old, now := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for i, f := range l.fields {
		if !equal(f.ReflectValueOf(context.Background(), old), f.ReflectValueOf(context.Background(), now)) {
			changed = append(changed, l.Columns[i])
		}
	}
	return changed
}

// equal reports whether two fields have equal values, pointers equal targets.
func equal(a, b reflect.Value) bool {
	if a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() {
		a, b = a.Elem(), b.Elem()
	}
	if a.Kind() == reflect.Slice {
		return bytes.Equal(a.Bytes(), b.Bytes())
	}
	return a.Equal(b)
}

func values[T any](fields []*schema.Field, row *T) []any {
	value := reflect.ValueOf(row).Elem()
	out := make([]any, len(fields))
	for i, f := range fields {
		out[i] = valueAt(pointerTo(f, value))
	}
	return out
}

// Names names the tables of types: in the plural, except those listed here.
type Names struct{ schema.NamingStrategy }

// TableName implements schema.Namer.
func (n Names) TableName(name string) string {
	switch name {
	case "Account":
		return "usage_accounts"
	case "AuditEntry":
		return "audit"
	case "Fact":
		return "usage_facts"
	case "InboxMessage":
		return "inbox"
	case "taskRow", "TaskInput", "ListedTask":
		return "tasks"
	case "outcomeRow":
		return "outcomes"
	case "deliveryRow":
		return "deliveries"
	case "reservationRow":
		return "usage_reservations"
	case "toolPolicyRow":
		return "tool_policies"
	}
	return n.NamingStrategy.TableName(name)
}

// Adapt makes gorm read and write the columns of a type of rows like every other statement, and seal those
// of seal.Columns with keys. The callers set the time stamps.
func Adapt(s *schema.Schema, keys *seal.Keyring) {
	for _, f := range s.Fields {
		purpose := s.Table + "." + f.DBName
		_, sealed := seal.Columns()[purpose]
		f.AutoCreateTime, f.AutoUpdateTime, f.NewValuePool = 0, 0, columnPool{}
		f.ValueOf = func(ctx context.Context, row reflect.Value) (any, bool) {
			field := f.ReflectValueOf(ctx, row)
			v, err := Value(field.Interface())
			if err != nil {
				v = err // Values returns it
			} else if plain := bytesOf(v); sealed && plain != nil {
				v = keys.Seal(purpose, plain)
			}
			return v, field.IsZero()
		}
		f.Set = func(ctx context.Context, row reflect.Value, v any) error {
			field := f.ReflectValueOf(ctx, row)
			if scanned, ok := v.(*any); ok {
				if v = *scanned; sealed {
					plain, err := keys.Open(purpose, bytesOf(v))
					if err != nil {
						return err
					}
					v = plain
				}
			} else if value := reflect.ValueOf(v); value.IsValid() && value.Type() == field.Type() {
				field.Set(value)
				return nil
			}
			return (&column{field.Addr().Interface()}).Scan(v)
		}
	}
}

// columnPool has gorm scan columns as the driver returns them.
type columnPool struct{}

// Get implements schema.FieldNewValuePool.
func (columnPool) Get() any { return new(any) }

// Put implements schema.FieldNewValuePool.
func (columnPool) Put(any) {}
