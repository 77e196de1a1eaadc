/** What `like` and `ilike` take for texts that hold this part as it stands. */
export const containing = (part: string): string => `%${part.replaceAll(/[\\%_]/g, '\\$&')}%`
