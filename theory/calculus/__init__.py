"""Functions of sums over tokens: derivatives (`tokens`), values (`numeric`), size once expanded (`expansion`)."""
