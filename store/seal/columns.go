package seal

// Column is a column of bytes whose values are sealed, except NULL.
type Column struct {
	Table, Name string
	Key         string // another column that identifies a row, together with the value
}

// Purpose returns the purpose of the column's values.
func (c Column) Purpose() string { return c.Table + "." + c.Name }

// Columns returns the sealed columns. That of the key of the database comes first.
func Columns() []Column {
	return []Column{
		{"secret_keys", "sealed", "id"},
		{"webhooks", "secret", "id"},
		{"webhooks", "signing_key", "id"},
		{"webhooks", "previous_keys", "id"},
		{"webhooks", "headers", "id"},
		{"push_targets", "secret", "agent_id"},
		{"agent_keys", "secret", "agent_id"},
	}
}

// Purpose returns the purpose of the values of a column, "" for one that is not sealed.
func Purpose(table, name string) string {
	for _, c := range Columns() {
		if c.Table == table && c.Name == name {
			return c.Purpose()
		}
	}
	return ""
}
