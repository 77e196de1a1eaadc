import { copiesOfLarge } from './copy-large.ts'

await copiesOfLarge({ tables: 300, rows: 1_000_000 })
