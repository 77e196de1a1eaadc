const collator = new Intl.Collator('en')
export const byName = (a: { name: string }, b: { name: string }): number => collator.compare(a.name, b.name)
export const compareTexts = (a: string, b: string): number => collator.compare(a, b)
