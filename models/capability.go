package models

import "strings"

// CustomPrefix marks a capability that is not one of the predefined ones
// (CHE·NU §6.2).
const CustomPrefix = "custom:"

// standardCapabilities is the union of CHE·NU §6.1 and PROTOCOL_V5 §2.3. Read-only.
var standardCapabilities = func() map[string]bool {
	set := map[string]bool{}
	for _, c := range strings.Fields(`
		budgeting expense_tracking savings invoicing accounting payroll tax_planning
		email chat notifications reminders
		data_analysis reporting forecasting
		writing editing design media_production
		scheduling task_management project_planning
		web_search web_fetch code_read code_write code_exec file_ops
		text_gen summarize translate reason plan`) {
		set[c] = true
	}
	return set
}()

// IsStandardCapability reports whether the documents predefine the name.
func IsStandardCapability(name string) bool { return standardCapabilities[name] }

// IsCustomCapability reports whether the name carries the custom: prefix.
func IsCustomCapability(name string) bool { return strings.HasPrefix(name, CustomPrefix) }

// CapabilityKey is what two names of the same capability have in common: a name
// matches with or without its custom: prefix.
func CapabilityKey(name string) string { return strings.TrimPrefix(name, CustomPrefix) }
