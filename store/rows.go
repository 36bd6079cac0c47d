package store

import (
	"strings"
)

// Statements over many rows come in few sizes, so that the statement caches hold
// them: an insert is cut into powers of two, a list of keys is filled up to one. Where
// a database takes columns as arrays, one insert is for any number of rows.

const (
	// maxRows is how many rows one statement takes.
	maxRows = 128
	// maxArray is how many it takes as arrays.
	maxArray = 1000
)

// insertRows runs "head VALUES (?, …), … tail" over all rows, whose values lie one
// after the other in args, width values a row. A column has values of one type.
func (tx *Tx) insertRows(head, tail string, width int, args []any) error {
	row := "(?" + strings.Repeat(", ?", width-1) + ")"
	for len(args) > 0 {
		group := args[:min(len(args), maxArray*width)]
		if source, columns, ok := tx.store.dialect.asArrays(width, group); ok {
			if _, err := tx.exec(head+" SELECT * FROM "+source+" "+tail, columns...); err != nil {
				return err
			}
			args = args[len(group):]
			continue
		}
		n := maxRows
		for n*width > len(args) {
			n /= 2
		}
		query := head + " VALUES " + row + strings.Repeat(", "+row, n-1) + " " + tail
		if _, err := tx.exec(query, args[:n*width]...); err != nil {
			return err
		}
		args = args[n*width:]
	}
	return nil
}

// eachKeys calls do for the keys in groups, with the placeholders of a list and its
// arguments. A key of several columns lies one after the other in keys.
func eachKeys(keys []any, width int, do func(list string, args []any) error) error {
	row := "?"
	if width > 1 {
		row = "(?" + strings.Repeat(", ?", width-1) + ")"
	}
	for len(keys) > 0 {
		group := keys[:min(len(keys), maxRows*width)]
		keys = keys[len(group):]
		n := 1
		for n*width < len(group) {
			n *= 2
		}
		args := append(make([]any, 0, n*width), group...)
		for len(args) < n*width { // the last key again
			args = append(args, group[len(group)-width:]...)
		}
		list := "(" + row + strings.Repeat(", "+row, n-1) + ")"
		if width > 1 {
			list = "(VALUES " + row + strings.Repeat(", "+row, n-1) + ")"
		}
		if err := do(list, args); err != nil {
			return err
		}
	}
	return nil
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}
