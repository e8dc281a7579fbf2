"""What a person or a program asks for, and sees: options, progress, report."""
