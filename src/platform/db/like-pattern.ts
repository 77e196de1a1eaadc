/** Pattern of `like` and `ilike` that matches texts which contain this part literally. */
export const containsPattern = (part: string): string => `%${part.replaceAll(/[\\%_]/g, '\\$&')}%`
