export * from './identity.ts'
export * from './projects.ts'
export * from './values.ts'
export * from './webhooks.ts'
